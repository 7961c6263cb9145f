/* Finds boxes in a long list of them: a search field with `data-finds` hides those labels of the list it names that do not
   contain its text, and says how many are ticked. Hidden boxes that are ticked are sent all the same. */
(() => {
  "use strict";

  function find(field) {
    const wanted = field.value.trim().toLowerCase();
    const labels = [...document.querySelectorAll(`#${field.dataset.finds} label`)];
    for (const label of labels) label.hidden = !label.textContent.toLowerCase().includes(wanted);
    const ticked = labels.filter((label) => label.querySelector("input").checked).length;
    const text = `${ticked} of ${labels.length} selected`;
    const status = field.parentElement.querySelector("[role=status]");
    if (status.textContent !== text) status.textContent = text;
  }

  const findAll = () => document.querySelectorAll("[data-finds]").forEach(find);

  document.documentElement.classList.add("can-find");
  document.addEventListener("DOMContentLoaded", findAll);
  document.addEventListener("htmx:afterSwap", findAll);
  document.addEventListener("input", ({ target }) => { if (target.dataset.finds) find(target); });
  document.addEventListener("change", ({ target }) => { if (target.type === "checkbox") findAll(); });
})();
