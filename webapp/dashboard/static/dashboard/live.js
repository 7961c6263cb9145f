/* Keeps a page up to date without disturbing its reader: new content is merged into what stands there, so scroll,
   focus, selection and typed text stay; figures that changed glow for a moment; times are told as time
   passes, and on hovering in the reader's own zone.
   It looks when the events process tells of a commit; while nobody tells, each second. */
(() => {
  "use strict";

  // --- Times, by this page's own clock set to the server's

  const UNITS = [[120, 1, "s"], [7200, 60, "min"], [172800, 3600, "h"], [Infinity, 86400, "days"]];
  let serverAhead = 0;

  function setClock() {
    const live = document.getElementById("live");
    if (live) serverAhead = Date.parse(live.dataset.now) - Date.now();
  }

  function passed(moment, suffix) {
    const seconds = Math.max(0, (Date.now() + serverAhead - moment) / 1000);
    if (suffix && seconds < 1) return "just now";
    const [, size, unit] = UNITS.find(([until]) => seconds < until);
    return `${Math.floor(seconds / size).toLocaleString()} ${unit}${suffix}`;
  }

  function left(moment) {
    const seconds = Math.floor((moment - Date.now() - serverAhead) / 1000);
    if (seconds < 1) return "now";
    const [, size, unit] = UNITS.find(([until]) => seconds < until);
    return `in ${Math.floor(seconds / size).toLocaleString()} ${unit}`;
  }

  const TOLD = { ago: (moment, suffix) => passed(moment, suffix), until: left };

  function tell(time) {
    const moment = new Date(time.dateTime);
    const told = TOLD[time.dataset.form];
    if (told) {
      const text = told(moment, time.dataset.suffix);
      if (time.textContent !== text) time.textContent = text;
    }
    time.title = moment.toLocaleString(undefined, { dateStyle: "full", timeStyle: "long" });
  }

  const tellAll = () => document.querySelectorAll("time[data-form]").forEach(tell);

  // --- Merging: the old tree becomes the new one with as few touches as possible

  const keyOf = (node) => (node.dataset ? node.dataset.key : undefined);
  const alike = (a, b) => a.nodeName === b.nodeName && a.id === b.id && keyOf(a) === keyOf(b);

  function mergeAttributes(old, wanted) {
    for (const { name } of [...old.attributes]) if (!wanted.hasAttribute(name)) old.removeAttribute(name);
    for (const { name, value } of wanted.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  }

  function mergeChildren(old, wanted, changed) {
    const keyed = new Map([...old.children].filter(keyOf).map((child) => [keyOf(child), child]));
    let at = old.firstChild;
    for (const next of [...wanted.childNodes]) {
      const key = keyOf(next);
      const match = key === undefined ? at && alike(at, next) && at : keyed.get(key);
      keyed.delete(key);
      if (!match || !alike(match, next)) {
        old.insertBefore(next, at);
        continue;
      }
      if (match === at) at = at.nextSibling;
      else old.insertBefore(match, at);
      merge(match, next, changed);
    }
    while (at) {
      const rest = at.nextSibling;
      at.remove();
      at = rest;
    }
  }

  function merge(old, wanted, changed) {
    if (old.nodeType !== Node.ELEMENT_NODE) {
      if (old.nodeValue !== wanted.nodeValue) old.nodeValue = wanted.nodeValue;
      return;
    }
    if (old.nodeName === "TIME" && old.dateTime === wanted.dateTime) return;
    const differs = old.hasAttribute("data-live") && old.textContent !== wanted.textContent;
    const announced = old.dataset.announce !== wanted.dataset.announce && wanted.dataset.announce;
    mergeAttributes(old, wanted);
    // What is being typed is the reader's.
    if (old.nodeName === "INPUT" && old !== document.activeElement) old.value = wanted.value;
    mergeChildren(old, wanted, changed);
    if (differs) changed.push(old);
    if (announced) say(announced);
  }

  function glow(elements) {
    elements.forEach((element) => element.classList.remove("flash"));
    void document.body.offsetWidth; // lets an animation that still runs begin anew
    elements.forEach((element) => element.classList.add("flash"));
  }

  // --- What a reader is told, in sight and aloud

  let cutOff = false;

  function say(text) {
    document.getElementById("notice").textContent = text;
    if (text && !cutOff) setTimeout(() => { if (!cutOff) say(""); }, 4000);
  }

  function setCutOff(now) {
    if (now === cutOff) return;
    cutOff = now;
    document.body.classList.toggle("cut-off", now);
    say(now ? "No answer from the server; trying again every second" : "");
  }

  // --- When to look: told by push, else by polling

  const CALM_MS = 15000; // between two looks while commits are told: for what nobody tells of
  const LONGEST_WAIT_MS = 300000; // between two tries to be told, where the server does not do that
  let source = null;
  let told = false; // whether commits are told now
  let due = true; // something was told that has not been looked at
  let lookedAt = -Infinity;
  let waitMs = 5000;
  let retry = 0;

  function setTold(now) {
    told = now;
    if (pause) pause.title = now ? "Live: told of every commit" : "Live: asking every second";
    document.body.dataset.updates = now ? "live" : "polling";
  }

  function look() {
    due = true;
    const poll = document.getElementById("poll");
    if (poll) htmx.trigger(poll, "tide");
  }

  function listen() {
    const address = document.body.dataset.tides;
    if (source || !address || document.hidden) return;
    source = new EventSource(address, { withCredentials: true });
    source.addEventListener("ready", () => {
      waitMs = 5000;
      setTold(true);
      look();
    });
    source.addEventListener("tide", look);
    source.addEventListener("error", () => {
      setTold(false);
      // A lost connection is tried again by itself; a refusal is not.
      if (source && source.readyState === EventSource.CLOSED) tryAgainLater();
    });
  }

  function tryAgainLater() {
    rest();
    retry = setTimeout(listen, waitMs);
    waitMs = Math.min(2 * waitMs, LONGEST_WAIT_MS);
  }

  function rest() {
    clearTimeout(retry);
    if (source) source.close();
    source = null;
    setTold(false);
  }

  function restOrListen() {
    if (document.hidden) return rest();
    due = true;
    listen();
  }

  const isDue = () => due || !told || performance.now() - lookedAt >= CALM_MS;

  function looking() {
    due = false;
    lookedAt = performance.now();
  }

  document.addEventListener("visibilitychange", restOrListen);
  window.addEventListener("pagehide", rest);
  window.addEventListener("pageshow", restOrListen);

  // --- htmx

  const isPoll = (event) => event.detail.requestConfig && event.detail.requestConfig.elt.id === "poll";
  const pause = document.getElementById("pause");
  const paused = () => document.hidden || (pause && pause.getAttribute("aria-pressed") === "true");
  let polled = false;

  htmx.defineExtension("tide", {
    handleSwap(style, target, fragment) {
      const wanted = style === "tide" && fragment.querySelector("#live");
      if (!wanted) return false;
      const changed = [];
      merge(target, wanted, changed);
      setClock();
      tellAll();
      if (polled) glow(changed);
      return [target];
    },
  });

  document.addEventListener("htmx:beforeRequest", (event) => {
    if (!isPoll(event)) return;
    if (paused() || !isDue()) event.preventDefault();
    else looking();
  });
  document.addEventListener("htmx:beforeSwap", (event) => { polled = isPoll(event); });
  document.addEventListener("htmx:afterRequest", (event) => {
    if (isPoll(event) && !event.detail.successful) due = true;
    // A request that a newer one took the place of says nothing about the server.
    if (event.detail.xhr && event.detail.xhr.status) setCutOff(event.detail.xhr.status >= 500);
  });
  for (const lost of ["htmx:sendError", "htmx:timeout"]) document.addEventListener(lost, () => setCutOff(true));

  // --- Buttons that need this script, and so appear with it

  document.addEventListener("DOMContentLoaded", () => {
    setClock();
    tellAll();
    setInterval(tellAll, 1000);
    if (pause && document.getElementById("live")) pause.hidden = false;
    document.documentElement.classList.toggle("can-copy", Boolean(navigator.clipboard));
  });

  document.addEventListener("click", async (event) => {
    const button = event.target.closest("button");
    if (button && button === pause) {
      const now = button.getAttribute("aria-pressed") !== "true";
      button.setAttribute("aria-pressed", String(now));
      button.lastElementChild.textContent = now ? "Paused" : "Live";
      if (!now) look();
    } else if (button && button.dataset.copy) {
      await navigator.clipboard.writeText(document.querySelector(button.dataset.copy).textContent);
      say("Copied");
    }
  });
})();
