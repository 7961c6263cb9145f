/* Expands the call or schema that the address names. */
(() => {
  "use strict";

  function unfold() {
    const named = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!named || named.nodeName !== "DETAILS") return;
    named.open = true;
    named.scrollIntoView();
  }

  window.addEventListener("hashchange", unfold);
  document.addEventListener("DOMContentLoaded", unfold);
})();
