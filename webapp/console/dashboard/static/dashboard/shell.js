/* The theme, applied before the page is painted, and the choices in the menu of the bar. They are stored in this browser
   and apply to dashboard and admin: the theme is stored where the admin (Unfold) stores its own, as JSON.
   Also loads what a page names in <meta name="late-style"> and "late-script", once it has been painted, and at a first
   visit stores the style sheets that the page contains. Then nobody has chosen a theme, so the paint need not wait. */
(() => {
  "use strict";

  const THEME = "adminTheme", SLASH = "tidegaugeSlash";
  const root = document.documentElement;

  function stored(key) {
    try {
      return JSON.parse(localStorage.getItem(key));
    } catch {
      return null;
    }
  }

  function store(key, value) {
    try {
      localStorage.setItem(key, JSON.stringify(value));
    } catch {
      // Ignored, because without storage a choice still applies until the next page.
    }
  }

  function applyTheme(theme) {
    root.dataset.theme = theme;
    if (window.Alpine) {
      const admin = window.Alpine.$data(root);
      admin.switchTheme(""); // because switching to the same theme would not read the system's theme again
      admin.switchTheme(theme);
    }
    document.dispatchEvent(new Event("themechange"));
  }

  function applySlash(isOn) {
    root.dataset.slash = isOn ? "on" : "off";
  }

  function applyStored() {
    const theme = stored(THEME);
    applyTheme(theme === "light" || theme === "dark" ? theme : "auto");
    applySlash(stored(SLASH) !== "off");
  }

  // --- The menu

  function show(menu) {
    const slash = menu.querySelector(".slash");
    menu.querySelector(".themes").hidden = false;
    menu.querySelector(`[name=theme][value=${root.dataset.theme}]`).checked = true;
    if (!slash) return;
    slash.hidden = false;
    slash.querySelector("input").checked = root.dataset.slash === "on";
  }

  function change({ target }) {
    if (target.name === "theme") {
      store(THEME, target.value);
      applyTheme(target.value);
    } else if (target.name === "slash") {
      store(SLASH, target.checked ? "on" : "off");
      applySlash(target.checked);
    }
  }

  function closeOn(event, menu) {
    if (!menu.open || (event.key !== "Escape" && (event.key || menu.contains(event.target)))) return;
    menu.open = false;
    if (event.key) menu.querySelector("summary").focus();
  }

  // --- Files that the first paint does not wait for, nor shares a slow connection with

  function loadLate() {
    for (const { name, content } of document.querySelectorAll("meta[name^=late-]")) {
      const isScript = name === "late-script";
      const file = document.createElement(isScript ? "script" : "link");
      // In the order of the page, because a script may need the one before it.
      Object.assign(file, isScript ? { src: content, async: false } : { rel: "stylesheet", href: content });
      document.head.append(file);
    }
  }

  /* Stores the style sheets in the browser's cache, and says so in a cookie, so that later pages only link to them. */
  async function storeStyles() {
    const sheets = [...document.querySelectorAll("meta[name=stores]")];
    if (!sheets.length) return;
    const answers = await Promise.all(sheets.map(({ content }) => fetch(content, { priority: "low" }).then((answer) => answer.text().then(() => answer.ok))));
    if (!answers.every(Boolean)) return;
    const secure = location.protocol === "https:" ? "; Secure" : "";
    document.cookie = `tidegauge_styles=${sheets[0].dataset.version}; Path=/; Max-Age=31536000; SameSite=Lax${secure}`;
  }

  // Not DOMContentLoaded, which waits for all deferred scripts.
  const isParsed = document.readyState !== "loading";
  const parsed = new Promise((resolve) => isParsed ? resolve() : document.addEventListener("readystatechange", resolve, { once: true }));
  const painted = new Promise((resolve) => new PerformanceObserver(resolve).observe({ type: "paint", buffered: true }));
  Promise.all([parsed, painted]).then(loadLate);
  addEventListener("load", () => storeStyles().catch(() => null)); // they are then part of the next page, too

  applyStored();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => applyTheme(root.dataset.theme));
  document.addEventListener("DOMContentLoaded", () => {
    const menu = document.querySelector(".menu");
    if (!menu) return;
    show(menu);
    menu.addEventListener("change", change);
    window.addEventListener("storage", () => {
      applyStored();
      show(menu);
    });
    for (const kind of ["click", "keydown"]) document.addEventListener(kind, (event) => closeOn(event, menu));
  });
})();
