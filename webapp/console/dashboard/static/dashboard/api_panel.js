/* Runs the request of the API panel as the signed-in user, and shows the response in a dialog, which a refresh of the
   page does not touch. */
(() => {
  "use strict";

  const MOST_CHARACTERS = 100000;

  const dialog = document.createElement("dialog");
  dialog.className = "answer";
  dialog.setAttribute("aria-labelledby", "answer-title");
  dialog.innerHTML =
    '<form method="dialog" class="bar-head"><h2 id="answer-title">Response</h2><button class="quiet">Close</button></form>' +
    '<p class="muted small" role="status"></p><pre class="code" tabindex="0" aria-labelledby="answer-title"></pre>';
  const [status, shown] = [dialog.querySelector("p"), dialog.querySelector("pre")];
  let running = null;

  function asText(text) {
    let readable = text;
    try { readable = JSON.stringify(JSON.parse(text), null, 2); } catch { /* not JSON */ }
    return readable.length > MOST_CHARACTERS ? `${readable.slice(0, MOST_CHARACTERS)}\n…` : readable;
  }

  async function run(button) {
    running?.abort();
    running = new AbortController();
    const { signal } = running;
    const { pathname, search } = new URL(button.dataset.run, location.href);
    const headers = { Accept: "application/json" };
    const { body } = button.dataset;
    if (body) {
      headers["Content-Type"] = "application/json";
      headers["X-CSRFToken"] = document.querySelector("[name=csrfmiddlewaretoken]").value;
    }
    status.textContent = "Waiting for the response …";
    shown.textContent = "";
    if (!dialog.open) dialog.showModal();
    try {
      const began = performance.now();
      const answer = await fetch(pathname + search, { method: body ? "POST" : "GET", headers, body, signal });
      const text = await answer.text();
      const took = Math.round(performance.now() - began);
      status.textContent = `${answer.status} ${answer.statusText} · ${took} ms · ${new Blob([text]).size.toLocaleString("en")} bytes`;
      shown.textContent = asText(text);
    } catch (error) {
      if (error.name !== "AbortError") status.textContent = `No response: ${error.message}`;
    }
  }

  dialog.addEventListener("close", () => running?.abort());
  document.addEventListener("DOMContentLoaded", () => {
    document.body.append(dialog);
    document.documentElement.classList.add("can-run");
  });
  document.addEventListener("click", (event) => {
    const button = event.target.closest("button[data-run]");
    if (button) run(button);
  });
})();
