/* Runs the request of the API panel or of the API reference, as the signed-in user or with an API key, and shows the
   response in a dialog, which a refresh of the page does not touch. */
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

  function requestOf({ run, method, body, headers, key }) {
    const url = new URL(run, location.href);
    // The server's own name for itself may be another than that in the address bar; only events may have another origin.
    const isElsewhere = url.pathname.startsWith("/events/") && url.origin !== location.origin;
    const sent = { Accept: "application/json, text/event-stream, */*;q=0.5", ...JSON.parse(headers || "{}") };
    const asked = method || (body ? "POST" : "GET");
    if (body) sent["Content-Type"] = "application/json";
    if (key) sent.Authorization = `Bearer ${key}`;
    else if (asked !== "GET") sent["X-CSRFToken"] = document.querySelector("[name=csrfmiddlewaretoken]").value;
    const options = { method: asked, headers: sent, body: body || undefined, credentials: isElsewhere ? "include" : "same-origin" };
    return [isElsewhere ? url.href : url.pathname + url.search, options];
  }

  /* Shows what has arrived of an answer, because a stream of events does not end by itself. */
  async function showBody(answer, said) {
    const type = answer.headers.get("Content-Type") || "";
    const isText = type === "" || /json|^text\//.test(type), isStream = type.startsWith("text/event-stream");
    const decoder = new TextDecoder();
    let bytes = 0, text = "";
    for await (const part of partsOf(answer)) {
      bytes += part.length;
      if (isText && text.length <= MOST_CHARACTERS) text += decoder.decode(part, { stream: true });
      if (isStream) shown.textContent = asText(text);
      status.textContent = said(bytes);
    }
    status.textContent = said(bytes);
    shown.textContent = isText ? asText(text) : `${type} is not shown here.`;
  }

  async function* partsOf(answer) {
    const reader = answer.body?.getReader();
    for (let part = await reader?.read(); part && !part.done; part = await reader.read()) yield part.value;
  }

  async function run(button) {
    if (button.dataset.confirm && !window.confirm(button.dataset.confirm)) return;
    running?.abort();
    running = new AbortController();
    const { signal } = running;
    const [url, options] = requestOf(button.dataset);
    status.textContent = "Waiting for the response …";
    shown.textContent = "";
    if (!dialog.open) dialog.showModal();
    try {
      const began = performance.now();
      const answer = await fetch(url, { ...options, signal });
      const took = Math.round(performance.now() - began);
      await showBody(answer, (bytes) => `${answer.status} ${answer.statusText} · ${took} ms · ${bytes.toLocaleString("en")} bytes`);
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
    if (button && (!button.form || button.form.reportValidity())) run(button);
  });
})();
