/* Highlights in the lineage graph what a node is computed from and what is computed from it, while the pointer is over
   it or it has the focus. At first, the node that the filter names is scrolled to the middle. */
(() => {
  "use strict";

  function reached(first, lines, from, to) {
    const boxes = new Set([first]), passed = [];
    for (const box of boxes) { // the set grows during the loop
      for (const line of lines.filter((line) => line.dataset[from] === box)) {
        boxes.add(line.dataset[to]);
        passed.push(line);
      }
    }
    return [boxes, passed];
  }

  function center(box) {
    const panel = box.closest(".graph"), inner = box.getBoundingClientRect();
    const outer = panel.getBoundingClientRect();
    panel.scrollBy(inner.x + inner.width / 2 - outer.x - outer.width / 2, inner.y + inner.height / 2 - outer.y - outer.height / 2);
  }

  function follow(graph) {
    const lines = [...graph.querySelectorAll("[data-start]")];
    const boxes = [...graph.querySelectorAll("[data-box]")];

    function show(box) {
      const number = box?.dataset.box;
      const [before, to] = reached(number, lines, "end", "start");
      const [after, from] = reached(number, lines, "start", "end");
      graph.classList.toggle("followed", Boolean(box));
      for (const each of boxes) each.classList.toggle("on", before.has(each.dataset.box) || after.has(each.dataset.box));
      for (const line of lines) line.classList.toggle("on", to.includes(line) || from.includes(line));
    }

    const at = (target) => target?.closest?.("[data-box]");
    // On the panel, because Chromium gives an svg that listens for focus its own tab stop.
    const panel = graph.parentElement;
    for (const kind of ["pointerover", "focusin"]) panel.addEventListener(kind, ({ target }) => show(at(target)));
    for (const kind of ["pointerleave", "focusout"]) panel.addEventListener(kind, () => show(at(document.activeElement)));
  }

  document.addEventListener("DOMContentLoaded", () => document.querySelectorAll(".graph svg").forEach((graph) => {
    const asked = graph.querySelector("[aria-current]");
    if (asked) center(asked);
    follow(graph);
  }));
})();
