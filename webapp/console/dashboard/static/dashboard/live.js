/* Keeps a page up to date: new content is merged into the page, so that scroll position, focus, selection and typed text
   stay, and figures that changed are highlighted for a moment. The page asks for new content when the events process
   reports a commit; without that connection it asks every second, or every few seconds if it is large, and down to a
   fifth as often while nothing changes. */
(() => {
  "use strict";

  // --- Merging: Idiomorph turns the old tree into the new one and matches elements by id

  const isUserInput = (name, field) =>
    (name === "value" && (field === document.activeElement || field.nodeName === "TEXTAREA")) || ["selected", "checked"].includes(name) ||
    (name === "open" && field.nodeName === "DETAILS");

  // What is announced is "subject: text". By subject and not by element, because a row may move to another list.
  const announcements = (tree) =>
    new Map([...tree.querySelectorAll("[data-announce]")].map(({ dataset }) => [dataset.announce.split(": ")[0], dataset.announce]));

  function merge(old, latest) {
    const changed = [], before = announcements(old), after = announcements(latest);
    const callbacks = {
      beforeNodeMorphed(node, next) {
        if (node.nodeName === "TIME" && node.dateTime === next.dateTime) return false;
        if (node.nodeType !== Node.ELEMENT_NODE) return true;
        if (node.hasAttribute("data-keep")) return false; // its content is made by a script
        if (node.hasAttribute("data-live") && node.textContent !== next.textContent) changed.push(node);
        return true;
      },
      // Keep what the reader typed or selected until the form is sent, and which details are open.
      beforeAttributeUpdated: (name, field) => !isUserInput(name, field),
    };
    Idiomorph.morph(old, latest, { callbacks });
    followStrip(latest.querySelector("#strip"));
    after.forEach((text, subject) => { if (before.has(subject) && before.get(subject) !== text) notify(text); });
    return changed;
  }

  /* What is outside of the merged part: the number beside Health, and the icon of the tab. */
  function followStrip(strip) {
    if (!strip) return;
    for (const place of document.querySelectorAll("nav [data-needs]")) {
      place.hidden = strip.dataset.troubled === "0";
      place.lastElementChild.textContent = strip.dataset.troubled;
    }
    const icon = document.getElementById("favicon");
    if (icon && icon.getAttribute("href") !== strip.dataset.icon) icon.setAttribute("href", strip.dataset.icon);
  }

  function highlight(elements) {
    elements.forEach((element) => element.classList.remove("flash"));
    void document.body.offsetWidth; // restarts an animation that is still running
    elements.forEach((element) => element.classList.add("flash"));
  }

  // --- Notices, which screen readers announce

  let isOffline = false;

  function notify(text) {
    document.getElementById("notice").textContent = text;
    if (text && !isOffline) setTimeout(() => { if (!isOffline) notify(""); }, 4000);
  }

  function setOffline(now) {
    if (now === isOffline) return;
    isOffline = now;
    document.body.classList.toggle("offline", now);
    labelPause();
    notify(now ? "No response from the server. Retrying." : "");
  }

  // --- When to refresh: on pushed commits, else by polling

  const CONNECTED_REFRESH_MS = 15000; // while connected: some changes, such as a lost driver, are not pushed
  const MOST_TIMES_SLOWER = 5; // while polling: each request takes a few milliseconds of the processor, here and there
  const MAX_RECONNECT_MS = 300000;
  const MAX_REFUSALS = 3; // then give up, if no events process has ever answered
  let source = null;
  let connected = false;
  let due = true; // a commit was reported that the page does not show yet
  let refreshedAt = -Infinity;
  let reconnectMs = 5000;
  let reconnectTimer = 0;
  let refusals = 0;
  let wasConnected = false;
  let unchanged = 0; // answers in a row that nothing has changed
  let asking = null; // what ends the request for new content that is under way

  function labelPause() {
    if (!pause) return;
    const isPaused = pause.getAttribute("aria-pressed") === "true";
    pause.lastElementChild.textContent = isPaused ? "Paused" : isOffline ? "Disconnected" : "Live";
  }

  function setConnected(now) {
    connected = now;
    const seconds = pollSeconds();
    const often = seconds === 1 ? "every second" : `every ${seconds} seconds`;
    const whatHappens = `Live: asks for updates ${often}, and less often while nothing changes`;
    if (pause) pause.title = !now ? whatHappens : seconds === 1 ? "Live: updates on every commit" : `Live: updates on commits, at most ${often}`;
    document.body.dataset.updates = now ? "live" : "polling";
    schedule();
  }

  function pollSeconds() {
    const poll = document.getElementById("poll");
    return poll ? Number(poll.dataset.seconds) : 1;
  }

  // At most as often as the page polls: an earlier refresh is left to the next poll.
  function refresh() {
    due = true;
    if (performance.now() - refreshedAt >= pollSeconds() * 1000) ask();
    else schedule();
  }

  /* Asks without htmx, which takes several milliseconds for each request, even if its answer is that nothing has changed. */
  async function ask() {
    const poll = document.getElementById("poll");
    if (!poll || asking || paused() || !isDue()) return schedule();
    due = false;
    refreshedAt = performance.now();
    asking = new AbortController();
    const { query } = poll.dataset;
    try {
      const signal = AbortSignal.any([asking.signal, AbortSignal.timeout(htmx.config.timeout)]);
      const answer = await fetch(addressOf(poll), { headers: { "HX-Request": "true" }, signal });
      if (answer.ok) await take(poll, query, answer);
      else due = true;
      setOffline(answer.status >= 500);
    } catch (error) {
      due = true;
      if (error.name !== "AbortError") setOffline(true);
    }
    asking = null;
    schedule();
  }

  function addressOf(poll) {
    const query = new URLSearchParams();
    for (const [name, value] of Object.entries(JSON.parse(poll.dataset.query))) for (const each of [value].flat()) query.append(name, each);
    return `${poll.dataset.url}?${query}`;
  }

  async function take(poll, query, answer) {
    if (answer.headers.has("HX-Refresh")) location.reload();
    unchanged = answer.status === 204 ? unchanged + 1 : 0;
    if (answer.status !== 200) return;
    const text = await answer.text();
    // The reader may have asked for other content meanwhile, whose answer has changed what this element asks for.
    if (document.getElementById("poll")?.dataset.query !== query) return;
    if (paused()) { // since it was asked
      due = true;
      return;
    }
    isPolled = true;
    htmx.swap("#live", text, { swapStyle: "merge", swapDelay: 0, settleDelay: 0 }, { contextElement: poll });
    isPolled = false;
  }

  // One timer until the next request, because htmx's own one would wake an idle page every second.
  let timer = 0;

  function schedule() {
    clearTimeout(timer);
    if (paused()) return;
    const wait = connected && !due ? CONNECTED_REFRESH_MS : 1000 * pollSeconds() * Math.min(1 + unchanged / 5, MOST_TIMES_SLOWER);
    timer = setTimeout(ask, Math.max(1000, refreshedAt + wait - performance.now()));
  }

  function connect() {
    const address = document.body.dataset.commitsUrl;
    if (source || !address || document.hidden) return;
    source = new EventSource(address, { withCredentials: true });
    source.addEventListener("ready", () => {
      reconnectMs = 5000;
      wasConnected = true;
      setConnected(true);
      refresh();
    });
    source.addEventListener("tide", refresh);
    source.addEventListener("error", () => {
      setConnected(false);
      // The browser reconnects a lost connection itself, but not a refused one.
      if (source && source.readyState === EventSource.CLOSED) reconnectLater();
    });
  }

  function reconnectLater() {
    disconnect();
    refusals += 1;
    if (!wasConnected && refusals >= MAX_REFUSALS) return;
    reconnectTimer = setTimeout(connect, reconnectMs);
    reconnectMs = Math.min(2 * reconnectMs, MAX_RECONNECT_MS);
  }

  function disconnect() {
    clearTimeout(reconnectTimer);
    if (source) source.close();
    source = null;
    setConnected(false);
  }

  function followVisibility() {
    schedule();
    if (document.hidden) return disconnect();
    due = true;
    unchanged = 0;
    connect();
  }

  const isDue = () => due || !connected || performance.now() - refreshedAt >= CONNECTED_REFRESH_MS;

  window.addEventListener("offline", () => setOffline(true));
  window.addEventListener("online", refresh);
  document.addEventListener("visibilitychange", followVisibility);
  window.addEventListener("pagehide", () => {
    if (asking) asking.abort();
    disconnect();
  });
  window.addEventListener("pageshow", followVisibility);

  // --- htmx

  const pause = document.getElementById("pause");
  const paused = () => document.hidden || (pause && pause.getAttribute("aria-pressed") === "true");
  let isPolled = false;

  htmx.defineExtension("merge", {
    handleSwap(style, target, fragment) {
      const latest = style === "merge" && fragment.querySelector("#live");
      if (!latest) return false;
      const changed = merge(target, latest);
      if (isPolled) highlight(changed);
      return [target];
    },
  });

  // What the reader asks for replaces the request for new content of the page so far.
  document.addEventListener("htmx:beforeRequest", ({ detail }) => { if (detail.target.id === "live" && asking) asking.abort(); });
  document.addEventListener("htmx:afterRequest", ({ detail }) => {
    schedule();
    // A request that a newer one replaced has no status and says nothing about the server.
    if (detail.xhr && detail.xhr.status) setOffline(detail.xhr.status >= 500);
  });
  for (const failure of ["htmx:sendError", "htmx:timeout"]) document.addEventListener(failure, () => setOffline(true));
  // Leave empty fields out of the address.
  document.addEventListener("htmx:configRequest", ({ detail }) => {
    if (detail.elt.nodeName !== "FORM") return;
    for (const name of new Set(detail.formData.keys())) {
      const values = detail.formData.getAll(name).filter((value) => value !== "");
      detail.formData.delete(name);
      values.forEach((value) => detail.formData.append(name, value));
    }
  });

  // --- Buttons that need this script are shown by it

  document.addEventListener("DOMContentLoaded", () => {
    if (pause && document.getElementById("live")) pause.hidden = false;
    schedule();
    document.documentElement.classList.toggle("can-copy", Boolean(navigator.clipboard));
  });

  document.addEventListener("click", async (event) => {
    const button = event.target.closest("button");
    if (button && button === pause) {
      const now = button.getAttribute("aria-pressed") !== "true";
      button.setAttribute("aria-pressed", String(now));
      labelPause();
      if (!now) refresh();
    } else if (button?.matches(".copy")) {
      await navigator.clipboard.writeText(button.dataset.copies ?? document.querySelector(button.dataset.copy).textContent);
      notify("Copied");
    }
  });
})();
