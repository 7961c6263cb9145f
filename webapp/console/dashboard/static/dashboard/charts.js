/* Loaded once the page is painted. Draws charts over time with uPlot: each figure with `data-series-url` names a series of the API and its lines.
   Charts of one address are drawn from one answer. A range that ends now follows the clock, and reads its newest points
   again after the page was refreshed, once per step at most. Dragging over a chart zooms into the dragged range, and a click on a point opens its batch. */
(() => {
  "use strict";

  const HEIGHT = 180;
  // Of charts below each other that share a time axis, whose times only the last one shows.
  const STACKED_HEIGHT = 96, TIMES_HEIGHT = 24;
  const LIMIT_SHOWN = 5; // a limit is on the axis once the values reach a fifth of it, else they would be flat
  const MARK_PX = 6;
  const STACK_SHARE = 55; // percent of a colour in the areas of a stack, whose upper edges have all of it
  const LEAST_ZOOM_SECONDS = 2;
  // Each move draws all visible charts again, and a page on which nothing happens should cost next to nothing.
  const LEAST_MOVE_SECONDS = 30;
  // After an answer that may be another one soon, because the page of a pipeline that is done is not refreshed.
  const RETRY_SECONDS = 5;
  const drawn = new Map(); // id of a figure to { plot, answer }
  const read = new Map(); // address to { answer, at }
  let isDue = false; // the page was refreshed since the series were read

  const probe = document.createElement("i");

  // The computed color, because a canvas does not understand light-dark(), which the variables use.
  function color(name, share = 100) {
    probe.style.color = share < 100 ? `color-mix(in srgb, var(${name}) ${share}%, var(--panel))` : `var(${name})`;
    if (!probe.isConnected) document.head.append(probe);
    return getComputedStyle(probe).color;
  }
  const lineColor = (place) => color(`--series-${place}`);

  // --- Writing numbers, as the pages do

  const digits = (number, most = 2) => number.toLocaleString(undefined, { maximumFractionDigits: most });

  function duration(seconds) {
    const size = Math.abs(seconds);
    if (size === 0) return "0 s";
    if (size < 1) return `${digits(seconds * 1000, size < 0.01 ? 1 : 0)} ms`;
    if (size < 120) return `${digits(seconds, size < 10 ? 2 : 0)} s`;
    if (size < 7200) return `${digits(seconds / 60, 1)} min`;
    return size < 172800 ? `${digits(seconds / 3600, 1)} h` : `${digits(seconds / 86400, 1)} days`;
  }

  function written(number, unit) {
    if (number === null || number === undefined) return "—";
    return unit === "s" ? duration(number) : digits(number);
  }

  const compact = new Intl.NumberFormat(undefined, { notation: "compact", maximumFractionDigits: 2 });
  const onAxis = (number, unit) => (unit === "s" ? duration(number) : Math.abs(number) < 10000 ? digits(number, 6) : compact.format(number));

  // Possible steps of an axis of durations, in seconds.
  const DURATIONS = [1e-3, 1e-2, 1e-1].flatMap((each) => [each, 2 * each, 5 * each])
    .concat([1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 21600, 43200])
    .concat([1, 10, 100, 1000].flatMap((each) => [86400 * each, 172800 * each, 432000 * each]));

  const TIME = { hour: "2-digit", minute: "2-digit" };
  const SECONDS = { ...TIME, second: "2-digit" };
  const DAY = { month: "short", day: "numeric" };
  const moment = new Intl.DateTimeFormat(undefined, { ...DAY, ...SECONDS });
  const formats = { day: new Intl.DateTimeFormat(undefined, DAY), minutes: new Intl.DateTimeFormat(undefined, TIME), seconds: new Intl.DateTimeFormat(undefined, SECONDS) };

  function onTimeAxis(plot, splits, axis, space, step) {
    return splits.map((at) => {
      const date = new Date(at * 1000);
      const isMidnight = date.getHours() === 0 && date.getMinutes() === 0 && date.getSeconds() === 0;
      return formats[step >= 86400 || isMidnight ? "day" : step < 60 ? "seconds" : "minutes"].format(date);
    });
  }

  // --- Reading series

  function address(figure) {
    const { seriesUrl, from, to, last } = figure.dataset;
    const url = new URL(seriesUrl, document.baseURI);
    for (const [name, value] of Object.entries({ from, to, last })) if (value) url.searchParams.set(name, value);
    return url.href;
  }

  async function answerOf(url) {
    const response = await fetch(url, { headers: { Accept: "application/json" } });
    if (response.ok) return withSeconds(await response.json());
    const { detail } = [400, 429, 503].includes(response.status) ? await response.json() : {};
    const retrySeconds = Number(response.headers.get("Retry-After")) || (response.status >= 500 ? RETRY_SECONDS : 0);
    throw Object.assign(new Error(`${response.status}`), { detail, retrySeconds });
  }

  /* The API writes times as text, the pages' own series as seconds, which uPlot takes. */
  function withSeconds(answer) {
    return { ...answer, times: answer.times.map((at) => (typeof at === "string" ? Date.parse(at) / 1000 : at)) };
  }

  /* Stores the answers that came with the page, so that they are not read again. */
  function takeAnswers() {
    for (const charts of document.querySelectorAll(".charts[data-answer]")) {
      const url = address(charts.querySelector("figure"));
      const answer = { ...JSON.parse(charts.dataset.answer), url, readAt: performance.now() };
      if (!read.has(url)) read.set(url, Promise.resolve(answer));
    }
  }

  /* held: an answer of which only the newest points are read again, or null. */
  async function series(url, held = null) {
    const known = read.get(url);
    if (known) return known;
    const asked = held ? tail(url, held) : answerOf(url);
    read.set(url, asked);
    asked.then((answer) => Object.assign(answer, { url, readAt: performance.now() }), () => read.delete(url));
    return asked;
  }

  const TAIL_POINTS = 10; // enough for the server to find gaps among them

  async function tail(url, held) {
    const { step_seconds: step, times } = held;
    const last = Number(new URL(url).searchParams.get("last"));
    const now = Date.parse(held.to) / 1000 + (performance.now() - held.readAt) / 1000;
    const hasValues = (place) => Object.values(held.series).some((values) => values[place] !== null);
    // Starts at a step with a point, at least ten steps back, because the server divides such a range like a longer one.
    const upto = Math.min(times.at(-TAIL_POINTS) ?? -Infinity, now - TAIL_POINTS * step);
    const from = step * Math.floor(times.findLast((at, place) => at <= upto && hasValues(place)) / step);
    if (!(from > now - last)) return answerOf(url);
    const asked = new URL(url);
    asked.searchParams.delete("last");
    asked.searchParams.set("from", new Date(1000 * from).toISOString());
    asked.searchParams.set("points", Math.ceil((now - from) / step) + 1);
    const newest = await answerOf(asked.href);
    return newest.step_seconds === step && newest.epoch === held.epoch ? joined(held, newest, from, last) : answerOf(url);
  }

  /* The points of `held` before `from`, and those of `newest` after them. */
  function joined(held, newest, from, last) {
    const since = Date.parse(newest.to) / 1000 - last;
    const end = held.times.findLastIndex((at) => at < from) + 1;
    // A key's value holds until its next version, so the one before the range is kept, and not repeated at `from`.
    const start = Math.max(0, held.times.findIndex((at) => at >= since) - 1);
    const isRepeated = newest.txids && end > 0 && newest.txids[0] === held.txids[end - 1];
    const join = (old, latest) => [...old.slice(start, end), ...latest.slice(isRepeated ? 1 : 0)];
    const lines = (of) => {
      const names = new Set([...Object.keys(held[of] || {}), ...Object.keys(newest[of] || {})]);
      return Object.fromEntries([...names].map((name) => [name, join(valuesOf(held, name), valuesOf(newest, name))]));
    };
    const times = join(held.times, newest.times);
    const txids = newest.txids && join(held.txids, newest.txids);
    return { ...newest, from: new Date(1000 * since).toISOString(), times, txids, series: lines("series"), phases: lines("phases") };
  }

  const valuesOf = (answer, name) => answer.series[name] || (answer.phases && answer.phases[name]) || answer.times.map(() => null);

  // --- Drawing

  const windowOf = (answer) => {
    const passed = answer.isLive ? (performance.now() - answer.readAt) / 1000 : 0;
    return [Date.parse(answer.from) / 1000 + passed, Date.parse(answer.to) / 1000 + passed];
  };

  const font = () => `12px ${getComputedStyle(document.body).fontFamily}`;

  // Wider than the drawing, because the space of the axis extends into the padding of the panel.
  const widthOf = (drawing) => drawing.clientWidth + 12;

  function axis(more) {
    return {
      stroke: () => color("--muted"),
      font: font(),
      grid: { stroke: () => color("--line"), width: 1 },
      ticks: { stroke: () => color("--line"), width: 1, size: 5 },
      ...more,
    };
  }

  function line(form, place, label) {
    if (form === "stack") return { label, stroke: () => lineColor(place), width: 1, fill: () => color(`--series-${place}`, STACK_SHARE), points: { show: false } };
    return {
      label,
      stroke: () => lineColor(place),
      width: 1.75,
      paths: form === "steps" ? uPlot.paths.stepped({ align: 1 }) : undefined,
      points: { size: 5, fill: () => lineColor(place), stroke: () => lineColor(place) },
    };
  }

  function options(figure, lines, answer) {
    const { unit, form, fromZero, limit, stacked } = figure.dataset;
    const name = unit || (lines.length > 1 ? figure.querySelector("h3").textContent : lines[0][1]);
    return {
      width: widthOf(figure.querySelector(".drawing")),
      height: heightOf(figure),
      padding: [10, 32, 0, 0], // room for half of the last time on the axis
      legend: { show: false },
      cursor: { sync: { key: "page" }, drag: { x: true, y: false, setScale: false, dist: 5 }, points: { size: 8 }, bind: { dblclick: () => null } },
      scales: {
        x: { time: true, range: () => windowOf(drawn.get(figure.id).answer) },
        y: { range: (plot, least, most) => valueRange(fromZero !== undefined, [least, most, ...openValues(drawn.get(figure.id)), most * LIMIT_SHOWN >= limit ? Number(limit) : null]) },
      },
      axes: [
        axis({ space: 70, ...(hasTimes(figure) ? { values: onTimeAxis, size: 30 } : { values: (plot, splits) => splits.map(() => ""), size: 30 - TIMES_HEIGHT }) }),
        axis({
          values: (plot, splits) => splits.map((each) => onAxis(each, unit)),
          ...(unit === "s" ? { incrs: DURATIONS } : stacked !== undefined ? {} : { label: name, labelSize: 18, labelFont: font() }),
          size: 60,
          space: stacked !== undefined ? 26 : 36,
        }),
      ],
      series: [{}, ...lines.map(([, label], place) => line(form, place + 1, label))],
      hooks: {
        draw: [
          (plot) => drawReplays(plot, drawn.get(figure.id).answer),
          (plot) => drawOpenStep(plot, drawn.get(figure.id)),
          (plot) => drawLimit(plot, Number(limit)),
          (plot) => drawMarks(plot, marksOf(figure)),
        ],
        setCursor: [(plot) => tip(plot, drawn.get(figure.id), lines, unit, marksOf(figure))],
        setSelect: [zoom],
        ready: [addTip, (plot) => openBatches(plot, figure)],
      },
    };
  }

  function valueRange(fromZero, values) {
    const some = values.filter((value) => value !== null && value !== undefined);
    const [least, most] = some.length ? [Math.min(...some), Math.max(...some)] : [0, 1];
    return fromZero ? [Math.min(0, 1.1 * least), most > 0 ? 1.1 * most : 1] : uPlot.rangeNum(least, most, 0.1, true);
  }

  const hasTimes = (figure) => figure.dataset.stacked === undefined || !figure.nextElementSibling;

  function heightOf(figure) {
    if (figure.dataset.stacked === undefined) return HEIGHT;
    return STACKED_HEIGHT + (hasTimes(figure) ? TIMES_HEIGHT : 0);
  }

  /* The heights of a stack: of each line and all after it, so that the first one is the sum, and is drawn below the others. */
  function heights(form, [times, ...lines]) {
    if (form !== "stack") return [times, ...lines];
    const sums = lines.map(() => []);
    times.forEach((at, place) => {
      const isGap = lines.every((line) => line[place] === null || line[place] === undefined);
      let sum = 0;
      for (let each = lines.length - 1; each >= 0; each -= 1) {
        sum += lines[each][place] ?? 0;
        sums[each][place] = isGap ? null : sum;
      }
    });
    return [times, ...sums];
  }

  // --- A limit, and what happened, as [seconds, text, tone]

  function drawLine(plot, name, dash, points) {
    const { ctx } = plot;
    ctx.save();
    ctx.strokeStyle = color(name);
    ctx.setLineDash(dash);
    ctx.lineWidth = devicePixelRatio;
    ctx.beginPath();
    points.forEach(([x, y], place) => (place ? ctx.lineTo(x, y) : ctx.moveTo(x, y)));
    ctx.stroke();
    ctx.restore();
  }

  function drawLimit(plot, limit) {
    const { bbox, scales } = plot;
    if (!(limit > 0) || limit > scales.y.max) return;
    const y = plot.valToPos(limit, "y", true);
    drawLine(plot, "--bad-fill", [5, 5], [[bbox.left, y], [bbox.left + bbox.width, y]]);
  }

  const TONES = { bad: "--bad-fill", watch: "--watch-fill", good: "--good-fill", calm: "--field" };

  const marksOf = (figure) => JSON.parse(figure.closest(".charts").dataset.marks || "[]");

  function drawMarks(plot, marks) {
    const { bbox, scales } = plot;
    for (const [at, , tone] of marks) {
      if (at < scales.x.min || at > scales.x.max) continue;
      const x = plot.valToPos(at, "x", true);
      drawLine(plot, TONES[tone], [], [[x, bbox.top], [x, bbox.top + bbox.height]]);
    }
  }

  // --- From a point to its batch

  const batchAddress = (figure, seconds) => `${figure.dataset.batchUrl}?${new URLSearchParams({ time: new Date(Math.ceil(seconds * 1000)).toISOString() })}`;

  function openBatches(plot, figure) {
    if (!figure.dataset.batchUrl) return;
    let from = null;
    plot.over.addEventListener("mousedown", ({ clientX }) => { from = clientX; });
    plot.over.addEventListener("click", ({ clientX }) => {
      const { idx } = plot.cursor;
      if (idx === null || idx === undefined || from === null || Math.abs(clientX - from) >= 5) return;
      location.assign(batchAddress(figure, plot.data[0][idx]));
    });
  }

  // --- Steps of event time: the last value holds to the end of its step, which is open while events of it may come

  const isByTime = (answer) => answer.is_open !== undefined && answer.times.length > 0;

  /* The points of the lines. The point of an open step is left out, because its value will rise. The line keeps the height of the step before. */
  function points(answer, values) {
    if (!isByTime(answer)) return values;
    const [times, ...lines] = values;
    const ends = (line) => (answer.is_open ? [...line.slice(0, -1), line.at(-2) ?? null, null] : [...line, line.at(-1)]);
    return [[...times, Date.parse(answer.to) / 1000], ...lines.map(ends)];
  }

  const openValues = ({ answer, values }) => (isByTime(answer) && answer.is_open ? values.slice(1).map((line) => line.at(-1)) : []);

  function drawOpenStep(plot, held) {
    const { ctx } = plot;
    const [from, to] = [held.answer.times.at(-1), Date.parse(held.answer.to) / 1000].map((at) => plot.valToPos(at, "x", true));
    ctx.save();
    ctx.setLineDash([4, 4]);
    ctx.lineWidth = 1.75 * devicePixelRatio;
    openValues(held).forEach((value, place) => {
      if (value === null) return;
      const y = plot.valToPos(value, "y", true);
      ctx.strokeStyle = lineColor(place + 1);
      ctx.beginPath();
      ctx.moveTo(from, y);
      ctx.lineTo(to, y);
      ctx.stroke();
    });
    ctx.restore();
  }

  function show(figure, answer) {
    const lines = JSON.parse(figure.dataset.lines);
    const values = [answer.times, ...lines.map(([name]) => valuesOf(answer, name))];
    const data = heights(figure.dataset.form, points(answer, values));
    const replays = (answer.series.replays || []).reduce((sum, each) => sum + each, 0);
    const drawing = figure.querySelector(".drawing");
    const key = JSON.stringify([lines, figure.dataset.unit, figure.dataset.form]);
    answer.isLive = Boolean(figure.dataset.last);
    const held = drawn.get(figure.id);
    if (held && held.key === key && held.plot.root.isConnected) {
      Object.assign(held, { answer, values });
      held.plot.setData(data);
    } else {
      if (held) held.plot.destroy();
      drawing.replaceChildren();
      const place = { key, answer, values, plot: null };
      drawn.set(figure.id, place);
      place.plot = new uPlot(options(figure, lines, answer), data, drawing);
      drawing.append(message("no-values muted small"), message("replays"), table(figure, lines));
      sizes.observe(drawing);
    }
    const latest = values.slice(1).map((line, place) => [lines[place][1], line.findLast((value) => value !== null)]);
    const isEmpty = latest.every(([, value]) => value === undefined);
    const text = isEmpty ? "No data in this range." : "";
    const summary = latest.map(([label, value]) => `${label}: ${written(value, figure.dataset.unit)}`).join(", ");
    drawing.querySelector(".no-values").textContent = text;
    const dashed = replays ? replayed(replays) : isByTime(answer) && answer.is_open ? "not all events of this time are counted yet" : "";
    drawing.querySelector(".replays").textContent = dashed && `Dashed: ${dashed}`;
    drawn.get(figure.id).plot.root.setAttribute("role", "img");
    drawn.get(figure.id).plot.root.setAttribute("aria-label", text || `${answer.times.length} points, the latest: ${summary}`);
    fill(drawing.querySelector("details"), figure, lines, values);
    // What a source does not tell, such as how many rows wait, has no line.
    figure.querySelectorAll(".legend li").forEach((each, place) => { each.hidden = !isEmpty && latest[place][1] === undefined; });
  }

  function message(names) {
    const shown = document.createElement("p");
    shown.className = names;
    return shown;
  }

  const replayed = (count) => `${digits(count)} replayed ${count === 1 ? "batch" : "batches"}`;

  /* Marks the points that have replayed batches. */
  function drawReplays(plot, { times, series: { replays = [] } }) {
    const { ctx, bbox } = plot;
    ctx.save();
    ctx.strokeStyle = color("--watch");
    ctx.setLineDash([4, 4]);
    ctx.beginPath();
    replays.forEach((each, place) => {
      const x = each ? plot.valToPos(times[place], "x", true) : -1;
      if (x < bbox.left || x > bbox.left + bbox.width) return;
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
    });
    ctx.stroke();
    ctx.restore();
  }

  // --- The same figures as a table

  function table(figure, lines) {
    const details = document.createElement("details");
    const summary = document.createElement("summary");
    const title = document.createElement("span");
    title.className = "visually-hidden";
    title.textContent = ` of ${figure.querySelector("h3").textContent}`;
    summary.append("Table", title);
    const scroll = document.createElement("div");
    scroll.className = "scroll";
    scroll.tabIndex = 0;
    scroll.setAttribute("role", "region");
    scroll.setAttribute("aria-label", `Table${title.textContent}`);
    const rows = document.createElement("table");
    rows.createTHead().insertRow().append(...["Time", ...lines.map(([, label]) => label)].map((text) => {
      const head = document.createElement("th");
      head.scope = "col";
      head.textContent = text;
      return head;
    }));
    rows.createTBody();
    scroll.append(rows);
    details.append(summary, scroll);
    details.addEventListener("toggle", () => fill(details, figure, lines, details.values));
    return details;
  }

  function fill(details, figure, lines, data) {
    const { unit, batchUrl } = figure.dataset;
    details.values = data;
    const body = details.querySelector("tbody");
    body.replaceChildren();
    if (!details.open) return;
    for (let place = data[0].length - 1; place >= 0; place -= 1) {
      const row = body.insertRow();
      const at = document.createElement(batchUrl ? "a" : "span");
      at.textContent = moment.format(new Date(data[0][place] * 1000));
      if (batchUrl) at.href = batchAddress(figure, data[0][place]);
      row.insertCell().append(at);
      for (const values of data.slice(1)) row.insertCell().textContent = written(values[place], unit);
    }
  }

  // --- The values at the cursor

  function addTip(plot) {
    plot.tip = document.createElement("div");
    plot.tip.className = "tip";
    plot.tip.hidden = true;
    plot.over.append(plot.tip);
  }

  function tip(plot, { answer, values }, lines, unit, marks) {
    const { left } = plot.cursor;
    const idx = Math.min(plot.cursor.idx ?? NaN, values[0].length - 1);
    if (!plot.tip) return;
    plot.tip.hidden = !(idx >= 0) || left < 0 || !plot.over.matches(":hover");
    if (plot.tip.hidden) return;
    const at = document.createElement("strong");
    at.textContent = moment.format(new Date(values[0][idx] * 1000));
    const rows = lines.map(([, label], place) => {
      const row = document.createElement("div");
      const mark = document.createElement("span");
      mark.className = `mark mark-${place + 1}`;
      const isGap = values[place + 1][idx] === null;
      const value = document.createElement("b");
      value.textContent = `${written(values[place + 1][idx], unit)}${isGap || !unit || unit === "s" ? "" : ` ${unit}`}`;
      row.append(mark, `${label} `, value);
      return row;
    });
    const near = marks.filter(([seconds]) => Math.abs(plot.valToPos(seconds, "x") - left) < MARK_PX).map(([, text]) => text);
    const replays = answer.series.replays?.[idx];
    plot.tip.replaceChildren(at, ...rows, ...[...near, ...(replays ? [`${replayed(replays)}, earlier attempts reverted`] : [])].map((text) => {
      const row = document.createElement("div");
      row.textContent = text;
      return row;
    }));
    const { clientWidth } = plot.over;
    const wanted = left > clientWidth / 2 ? left - plot.tip.offsetWidth - 12 : left + 12;
    plot.tip.style.left = `${Math.max(-50, Math.min(wanted, clientWidth - plot.tip.offsetWidth))}px`;
  }

  // --- Ranges: the fields are in the reader's time zone, addresses in UTC

  const field = (date) => new Date(date.getTime() - date.getTimezoneOffset() * 60000).toISOString().slice(0, 19);

  function localFields() {
    const zone = new Intl.DateTimeFormat(undefined, { timeZoneName: "short" }).formatToParts(new Date()).find((part) => part.type === "timeZoneName").value;
    document.querySelectorAll("#ranges [data-zone]").forEach((each) => { if (each.textContent !== zone) each.textContent = zone; });
    document.querySelectorAll("#ranges [data-moment]").forEach((each) => { if (each !== document.activeElement) each.value = field(new Date(each.dataset.moment)); });
  }

  function zoom(plot) {
    const { left, width } = plot.select;
    // Only the chart that is dragged over, because all show the selection, but only this one knows its exact ends.
    const fields = document.getElementById("range-custom");
    if (width < 5 || !plot.over.matches(":hover") || !fields) return;
    fields.open = true;
    const [since, until] = [plot.posToVal(left, "x"), plot.posToVal(left + width, "x")].map(Math.round);
    plot.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
    document.getElementById("range-from").value = field(new Date(since * 1000));
    document.getElementById("range-to").value = field(new Date(Math.max(until, since + LEAST_ZOOM_SECONDS) * 1000));
    document.getElementById("range-form").requestSubmit();
  }

  document.addEventListener("htmx:configRequest", ({ detail }) => {
    if (detail.elt.id !== "range-form") return;
    for (const name of ["from", "to"]) detail.formData.set(name, new Date(detail.formData.get(name)).toISOString().replace(".000Z", "Z"));
  });

  // --- Following the page

  const figures = () => [...document.querySelectorAll("figure[data-series-url]")];

  async function draw(figure) {
    const url = address(figure);
    try {
      const answer = await series(url);
      if (figure.isConnected && address(figure) === url) show(figure, answer);
    } catch (error) {
      const shown = figure.querySelector(".drawing .no-values") || figure.querySelector(".drawing").appendChild(message("no-values muted small"));
      shown.textContent = error.detail || "The series cannot be read right now.";
      if (error.retrySeconds) setTimeout(() => { if (figure.isConnected && address(figure) === url) draw(figure); }, 1000 * error.retrySeconds);
    }
  }

  function drawAll() {
    localFields();
    takeAnswers();
    const shown = figures();
    for (const [id, { plot }] of drawn) {
      if (!shown.some((figure) => figure.id === id)) {
        plot.destroy();
        drawn.delete(id);
      }
    }
    const wanted = new Set(shown.map(address));
    for (const url of read.keys()) if (!wanted.has(url)) read.delete(url);
    shown.forEach(draw);
  }

  /* Reads the series again if the page was refreshed, else moves the window; both once per step at most. */
  async function follow() {
    const pause = document.getElementById("pause");
    if (document.hidden || (pause && pause.getAttribute("aria-pressed") === "true")) return;
    const shown = figures().filter((figure) => figure.dataset.last && drawn.has(figure.id) && figure.offsetParent);
    if (!shown.length) return;
    const { answer } = drawn.get(shown[0].id);
    const now = performance.now();
    const least = Math.max(isDue ? 1 : LEAST_MOVE_SECONDS, answer.step_seconds / 2);
    const isTime = now - Math.max(answer.readAt, answer.movedAt || 0) >= 1000 * least;
    if (!isTime) return;
    if (isDue) {
      isDue = false;
      for (const url of new Set(shown.map(address))) {
        read.delete(url);
        series(url, answer.url === url ? answer : null).catch(() => null); // because each chart shows the error itself
      }
      shown.forEach(draw);
    } else {
      answer.movedAt = now;
      shown.forEach((figure) => drawn.get(figure.id).plot.setData(drawn.get(figure.id).plot.data));
    }
  }

  const sizes = new ResizeObserver((entries) => {
    for (const { target } of entries) {
      const held = drawn.get(target.closest("figure").id);
      if (held && target.clientWidth && held.plot.width !== widthOf(target)) held.plot.setSize({ width: widthOf(target), height: heightOf(target.closest("figure")) });
    }
  });

  document.addEventListener("htmx:afterSwap", () => {
    isDue = true;
    drawAll();
  });
  document.addEventListener("toggle", ({ target }) => {
    if (!target.open || !target.querySelector("figure[data-series-url]")) return;
    isDue = true; // those within were not followed
    drawAll();
  }, true);
  document.addEventListener("themechange", () => drawn.forEach(({ plot }) => plot.redraw(false, true)));
  drawAll();
  setInterval(follow, 1000);
})();
