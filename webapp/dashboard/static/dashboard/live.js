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

  // --- Merging: Idiomorph turns the old tree into the new one; it recognises elements by their ids

  const isReaders = (name, field) =>
    (name === "value" && (field === document.activeElement || field.nodeName === "TEXTAREA")) || name === "selected";

  function merge(old, wanted) {
    const changed = [], announced = [];
    const callbacks = {
      beforeNodeMorphed(node, next) {
        if (node.nodeName === "TIME" && node.dateTime === next.dateTime) return false;
        if (node.nodeType !== Node.ELEMENT_NODE) return true;
        if (node.hasAttribute("data-live") && node.textContent !== next.textContent) changed.push(node);
        if (next.dataset.announce && node.dataset.announce !== next.dataset.announce) announced.push(next.dataset.announce);
        return true;
      },
      // What is typed or chosen is the reader's until it is sent.
      beforeAttributeUpdated: (name, field) => !isReaders(name, field),
    };
    Idiomorph.morph(old, wanted, { callbacks });
    announced.forEach(say);
    return changed;
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
      const changed = merge(target, wanted);
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
