/* Silences: "until 9:00" means the next morning where the reader is, and a field for a time has the reader's time zone,
   which only the browser knows. */
(() => {
  "use strict";

  const MORNING = 9;

  document.addEventListener("click", (event) => {
    const button = event.target.closest("button[data-morning]");
    if (!button) return;
    const until = new Date();
    if (until.getHours() >= MORNING) until.setDate(until.getDate() + 1);
    until.setHours(MORNING, 0, 0, 0);
    button.value = until.toISOString();
  });

  // --- A form with `data-local-time`: the field shows the reader's time, and what is sent has its offset

  const zone = new Intl.DateTimeFormat(undefined, { timeZoneName: "short" }).formatToParts(new Date()).find(({ type }) => type === "timeZoneName").value;

  function showZone() {
    for (const each of document.querySelectorAll("[data-local-time] [data-zone]")) if (each.textContent !== zone) each.textContent = zone;
  }

  document.addEventListener("formdata", ({ target, formData }) => {
    if (!("localTime" in target.dataset)) return;
    for (const { name, value } of target.querySelectorAll("input[type=datetime-local]")) if (value) formData.set(name, new Date(value).toISOString());
  });
  document.addEventListener("DOMContentLoaded", showZone);
  document.addEventListener("htmx:afterSwap", showZone);
})();
