/* The search dialog of every page, which a link or a key opens and the keyboard can navigate. htmx requests the results;
   without this script the link leads to the search page. */
(() => {
  "use strict";

  const dialog = document.getElementById("search-dialog");
  if (!dialog) return;
  const text = document.getElementById("search-text");
  const said = document.getElementById("search-said");
  const results = () => document.getElementById("search-results");
  const options = () => [...dialog.querySelectorAll("[role=option]")];
  let active = null;

  function open() {
    if (!dialog.open && !document.querySelector("dialog[open]")) dialog.showModal();
    text.select();
  }

  function activate(option) {
    if (active) active.setAttribute("aria-selected", "false");
    active = option || null;
    if (!active) return text.removeAttribute("aria-activedescendant");
    active.setAttribute("aria-selected", "true");
    active.scrollIntoView({ block: "nearest" });
    text.setAttribute("aria-activedescendant", active.id);
  }

  function move(by) {
    const all = options();
    if (all.length) activate(all[(all.indexOf(active) + by + all.length) % all.length]);
  }

  function show() {
    const found = options();
    text.setAttribute("aria-expanded", String(found.length > 0));
    said.textContent = results().dataset.said;
    results().scrollTop = 0;
    activate(found[0]);
  }

  function fail() {
    said.textContent = "Search failed. Press Enter to try again.";
  }

  async function copy(key) {
    await navigator.clipboard.writeText(key);
    said.textContent = `Copied ${key}`;
  }

  // --- Opening and closing

  const isField = (element) => element.closest("input, textarea, select, [contenteditable]") !== null;
  const isShortcut = (event) =>
    (event.key.toLowerCase() === "k" && (event.ctrlKey || event.metaKey) && !event.shiftKey && !event.altKey) ||
    (event.key === "/" && !event.ctrlKey && !event.metaKey && !event.altKey && !isField(event.target) &&
      document.documentElement.dataset.slash !== "off");

  document.addEventListener("keydown", (event) => {
    if (event.isComposing || !isShortcut(event)) return;
    event.preventDefault();
    open();
  });
  document.getElementById("search-open").addEventListener("click", (event) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    open();
  });
  dialog.addEventListener("click", (event) => {
    const option = event.target.closest("[role=option]");
    if (option && option.dataset.copies) return copy(option.dataset.copies);
    const isFollowed = option && !event.ctrlKey && !event.metaKey && !event.shiftKey;
    if (event.target === dialog || isFollowed) dialog.close();
  });

  // --- Choosing; Enter leads to the search page while the results for the typed text have not arrived

  const isCurrent = () => results().dataset.text === text.value.trim();

  text.addEventListener("keydown", (event) => {
    if (event.isComposing) return;
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      move(event.key === "ArrowDown" ? 1 : -1);
    } else if (event.key === "Enter") {
      const chosen = isCurrent() && active;
      event.preventDefault();
      if (chosen) chosen.click();
      else text.form.submit();
    }
  });

  dialog.addEventListener("htmx:afterSwap", show);
  for (const failure of ["htmx:responseError", "htmx:sendError", "htmx:timeout"]) dialog.addEventListener(failure, fail);
})();
