/* The API reference: the request of a call as its fields say, for curl and for Run. Old addresses of calls lead to them. */
(() => {
  "use strict";

  const form = document.getElementById("call");

  if (!form) {
    const named = document.querySelector(`.operations [id="${CSS.escape(decodeURIComponent(location.hash.slice(1)))}"] a`);
    if (named) location.replace(named.href);
    return;
  }

  const run = form.querySelector("[data-run]");
  const shown = document.getElementById("curl");
  const bodyField = document.getElementById("call-body");
  const keyField = document.getElementById("api-key");
  const { method, server, path } = form.dataset;
  const inShell = (text) => `'${text.replaceAll("'", "'\\''")}'`;

  function request() {
    let filled = path;
    const query = new URLSearchParams(), headers = {};
    for (const { name, value, dataset } of form.querySelectorAll("[data-place]")) {
      if (value === "") continue;
      if (dataset.place === "path") filled = filled.replace(`{${name}}`, encodeURIComponent(value));
      else if (dataset.place === "query") query.append(name, value);
      else headers[name] = value;
    }
    return { url: `${server}${filled}${query.size ? `?${query}` : ""}`, headers, body: bodyField ? bodyField.value.trim() : "" };
  }

  function curl({ url, headers, body }) {
    const lines = [`curl -fsS "${url}"`, '-H "Authorization: Bearer $TIDEGAUGE_API_KEY"'];
    if (method === "DELETE" || (method === "POST" && !body)) lines.splice(1, 0, `-X ${method}`);
    for (const [name, value] of Object.entries(headers)) lines.push(`-H ${inShell(`${name}: ${value}`)}`);
    if (body) lines.push('-H "Content-Type: application/json"', `-d ${inShell(body)}`);
    return lines.join(" \\\n  ");
  }

  function write() {
    const asked = request();
    shown.textContent = curl(asked);
    Object.assign(run.dataset, { run: asked.url, method, body: asked.body, headers: JSON.stringify(asked.headers) });
    run.dataset.confirm = "changes" in form.dataset ? `${method} ${new URL(asked.url).pathname} changes something. Run it?` : "";
  }

  if (!run) return;
  form.addEventListener("input", write);
  keyField.addEventListener("input", () => { run.dataset.key = keyField.value.trim(); });
  // The click on Run has sent the request, see api_panel.js.
  form.addEventListener("submit", (event) => event.preventDefault());
  write();
})();
