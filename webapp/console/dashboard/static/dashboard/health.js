/* The Health page: "until 9:00" means the next morning where the reader is, which only the browser knows. */
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
})();
