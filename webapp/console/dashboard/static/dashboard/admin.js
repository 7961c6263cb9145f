/* Makes the admin's menu reachable by keyboard, gives labelled icons a role so that screen readers announce the label,
   and shows times as the dashboard does. */
(() => {
  "use strict";

  const SWITCHES = "#header-inner span[x-on\\:click], #nav-sidebar span[x-on\\:click]";

  function makeButton(element) {
    element.dataset.menu = "";
    element.tabIndex = 0;
    element.setAttribute("role", "button");
    element.setAttribute("aria-label", "Menu");
    element.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      element.click();
    });
  }

  function nameSigns() {
    document.querySelectorAll(".help-tooltip[aria-label]:not([role])").forEach((sign) => sign.setAttribute("role", "img"));
  }

  // Times are written in UTC, so that times.js can show them in the reader's time zone.
  const UTC_TIME = /^\s*(\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d) UTC\s*$/;

  function markTimes() {
    const texts = document.createTreeWalker(document.querySelector("main"), NodeFilter.SHOW_TEXT);
    const found = [];
    while (texts.nextNode()) if (UTC_TIME.test(texts.currentNode.data)) found.push(texts.currentNode);
    for (const text of found) {
      const time = document.createElement("time");
      const [, day, second] = text.data.match(UTC_TIME);
      time.dateTime = `${day}T${second}Z`;
      time.dataset.form = "at";
      time.textContent = text.data.trim();
      text.replaceWith(time);
    }
  }

  function capitalize(cell) {
    cell.dataset.label = cell.dataset.label.charAt(0).toUpperCase() + cell.dataset.label.slice(1);
  }

  document.addEventListener("DOMContentLoaded", () => {
    markTimes();
    document.querySelectorAll("#result_list [data-label]").forEach(capitalize);
    document.querySelectorAll(SWITCHES).forEach(makeButton);
    nameSigns();
    // Again on changes, because Django builds its selection lists after the page has loaded.
    new MutationObserver(nameSigns).observe(document.body, { childList: true, subtree: true });
  });
})();
