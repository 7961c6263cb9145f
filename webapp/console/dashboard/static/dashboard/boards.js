/* Saves a tile or a board as PNG: draws what is shown, its texts, charts and bars, onto a canvas. Nothing is sent anywhere,
   and no picture is loaded, which the page's policy would forbid. */
(() => {
  "use strict";

  const SCALE = 2; // sharp on screens with many pixels, and in documents
  const MARGIN = 16;
  const LEFT_OUT = ".png, .visually-hidden, button, script";

  const isClear = (color) => color === "transparent" || /^rgba\(.*, 0\)$/.test(color) || / \/ 0\)$/.test(color);

  function picture(root) {
    const frame = root.getBoundingClientRect();
    const canvas = document.createElement("canvas");
    canvas.width = SCALE * (frame.width + 2 * MARGIN);
    canvas.height = SCALE * (frame.height + 2 * MARGIN);
    const pen = canvas.getContext("2d");
    pen.scale(SCALE, SCALE);
    pen.fillStyle = getComputedStyle(document.body).backgroundColor;
    pen.fillRect(0, 0, canvas.width, canvas.height);
    pen.translate(MARGIN - frame.left, MARGIN - frame.top);
    draw(pen, root);
    return canvas;
  }

  function draw(pen, element) {
    if (element.matches(LEFT_OUT) || !element.checkVisibility()) return;
    const style = getComputedStyle(element);
    if (element instanceof SVGGraphicsElement && element.nodeName !== "svg") return shape(pen, element, style);
    box(pen, element.getBoundingClientRect(), style);
    pen.save();
    if (style.overflowX !== "visible" || style.overflowY !== "visible") clip(pen, element.getBoundingClientRect());
    for (const child of element.childNodes) {
      if (child.nodeType === Node.ELEMENT_NODE) draw(pen, child);
      else if (child.nodeType === Node.TEXT_NODE) text(pen, child, style);
    }
    pen.restore();
  }

  function clip(pen, { left, top, width, height }) {
    pen.beginPath();
    pen.rect(left, top, width, height);
    pen.clip();
  }

  function box(pen, { left, top, width, height }, style) {
    const radius = Number.parseFloat(style.borderTopLeftRadius) || 0;
    pen.beginPath();
    pen.roundRect(left, top, width, height, Math.min(radius, width / 2, height / 2));
    if (!isClear(style.backgroundColor)) {
      pen.fillStyle = style.backgroundColor;
      pen.fill();
    }
    const sides = ["Top", "Bottom"].filter((side) => Number.parseFloat(style[`border${side}Width`]) > 0);
    if (sides.length === 2 && style.borderLeftWidth !== "0px") {
      pen.strokeStyle = style.borderTopColor;
      pen.lineWidth = 1;
      pen.stroke();
    } else {
      for (const side of sides) {
        pen.fillStyle = style[`border${side}Color`];
        pen.fillRect(left, side === "Top" ? top : top + height - 1, width, 1);
      }
    }
  }

  /* A path, a bar or a line of a chart, in the place where the page has it. */
  function shape(pen, element, style) {
    const { left, top, width, height } = element.getBoundingClientRect();
    if (element.nodeName === "rect") {
      pen.fillStyle = style.fill;
      pen.fillRect(left, top, width, height);
      return;
    }
    const path = new Path2D();
    if (element.nodeName === "path") path.addPath(new Path2D(element.getAttribute("d")), element.getScreenCTM());
    else path.rect(left, top, width, height);
    pen.strokeStyle = style.stroke;
    pen.lineWidth = Number.parseFloat(style.strokeWidth) || 1;
    pen.setLineDash(style.strokeDasharray === "none" ? [] : style.strokeDasharray.split(",").map(Number.parseFloat));
    pen.stroke(path);
    pen.setLineDash([]);
  }

  /* Word by word, because the page has broken the lines. */
  function text(pen, node, style) {
    pen.font = `${style.fontStyle} ${style.fontWeight} ${style.fontSize} ${style.fontFamily}`;
    pen.fillStyle = style.color;
    const { fontBoundingBoxAscent: ascent, fontBoundingBoxDescent: descent } = pen.measureText("x");
    const range = document.createRange();
    for (const { index, 0: word } of node.data.matchAll(/\S+/g)) {
      range.setStart(node, index);
      range.setEnd(node, index + word.length);
      const [place] = range.getClientRects();
      if (place) pen.fillText(word, place.left, place.top + (place.height - ascent - descent) / 2 + ascent);
    }
  }

  function save(canvas, name) {
    canvas.toBlob((blob) => {
      const link = document.createElement("a");
      link.href = URL.createObjectURL(blob);
      link.download = `${name.replace(/[^\p{L}\p{N} _.-]+/gu, " ").trim() || "board"}.png`;
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 10000);
    }, "image/png");
  }

  document.addEventListener("click", ({ target }) => {
    const button = target.closest("button[data-png]");
    const shown = button && document.querySelector(button.dataset.png);
    if (shown) save(picture(shown), shown.dataset.name || "tile");
  });
  document.documentElement.classList.add("can-draw");
})();
