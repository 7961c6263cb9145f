/* Makes the admin's menu reachable by keyboard, and gives signs that have a label the role that lets screen readers say it. */
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

  document.addEventListener("DOMContentLoaded", () => {
    document.querySelectorAll(SWITCHES).forEach(makeButton);
    nameSigns();
    // Django's lists to choose from are made after the page has been loaded.
    new MutationObserver(nameSigns).observe(document.body, { childList: true, subtree: true });
  });
})();
