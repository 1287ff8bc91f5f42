// Draws the charts of what is chosen, fills the tables beside them, and makes tables sortable.
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data-of-charts").textContent);
  const form = document.getElementById("controls");
  const status = document.querySelector(".status");
  const shown = new Map(); // chart -> what it was drawn for, and its views
  document.documentElement.classList.add("scripted");

  // ---- what is chosen ----

  const chosen = () => {
    const values = new FormData(form);
    return { ...Object.fromEntries(values), algorithms: values.getAll("algorithm") };
  };

  const rowsOf = (columns) => {
    const names = Object.keys(columns);
    const length = names.length ? columns[names[0]].length : 0;
    return Array.from({ length }, (_, i) => Object.fromEntries(names.map((name) => [name, columns[name][i]])));
  };
  for (const chart of Object.values(data.charts)) {
    chart.rows = Object.fromEntries(Object.entries(chart.rows).map(([name, columns]) => [name, rowsOf(columns)]));
  }

  const isShown = (row, state, alpha) =>
    (row.alpha === undefined || row.alpha === alpha) &&
    (row.conditions === undefined || row.conditions === state.conditions) &&
    (row.algorithm === undefined || !data.algorithms.includes(row.algorithm) || state.algorithms.includes(row.algorithm));

  // ---- charts ----

  const embed = async (place, spec, title) => {
    const result = await vegaEmbed(place, spec, {
      mode: "vega-lite",
      renderer: "svg",
      actions: false,
      ast: true, // no code is made from text, so that the page's security policy can forbid it
      config: data.config,
      defaultStyle: false,
      tooltip: { theme: "page", disableDefaultStyle: true },
    });
    place.setAttribute("role", "group");
    place.setAttribute("aria-label", title);
    return result;
  };

  const draw = async (figure, state) => {
    const chart = data.charts[figure.dataset.chart];
    const variant = chart.variants[chart.choices.map((name) => state[name]).join(" ")];
    const alphas = chart.alphas.filter((alpha) => state.alpha === "all" || alpha === state.alpha);
    const want = JSON.stringify([chart.choices.map((name) => state[name]), alphas, state.conditions, state.algorithms]);
    if (shown.get(figure)?.want === want) return;
    shown.get(figure)?.views.forEach((result) => result.finalize());
    const now = { want, views: [] };
    shown.set(figure, now);

    const panels = document.createElement("div");
    panels.className = "panels";
    panels.style.setProperty("--panels", alphas.length);
    figure.querySelector(".panels").replaceWith(panels);
    for (const algorithm of figure.querySelectorAll(".legend [data-algorithm]")) {
      const name = algorithm.dataset.algorithm;
      algorithm.hidden = data.algorithms.includes(name) && !state.algorithms.includes(name);
    }
    const listed = [];
    for (const alpha of alphas) {
      const datasets = Object.fromEntries(
        Object.entries(chart.rows).map(([name, rows]) => [name, rows.filter((row) => isShown(row, state, alpha))]),
      );
      listed.push(...Object.values(datasets).flat());
      const panel = document.createElement("div");
      panel.className = "panel";
      const heading = document.createElement("p");
      heading.className = "panel-title";
      heading.textContent = alpha === "none" ? "" : `alpha = ${alpha}`;
      const place = document.createElement("div");
      panel.append(heading, place);
      panels.append(panel);
      if (!datasets.rows.length) {
        place.textContent = "Nothing chosen has numbers here.";
        place.className = "empty";
        continue;
      }
      const title = `${chart.title}${heading.textContent ? `, ${heading.textContent}` : ""}`;
      const spec = { ...variant.spec, description: title, datasets: { ...variant.spec.datasets, ...datasets } };
      const result = await embed(place, spec, title);
      if (shown.get(figure) !== now) return result.finalize();
      now.views.push(result);
    }
    fillNumbers(figure, chart, variant.columns, listed);
  };

  const update = async () => {
    const state = chosen();
    document.documentElement.removeAttribute("data-drawn");
    await Promise.all([...document.querySelectorAll("figure.chart")].map((figure) => draw(figure, state)));
    document.documentElement.setAttribute("data-drawn", "");
  };

  // ---- numbers ----

  const written = (value, { digits, sign }) => {
    if (value === null || value === undefined) return "—";
    if (typeof value === "string") return value.replaceAll("\n", " ");
    const text = Math.abs(value).toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
    return (value < 0 ? "-" : sign ? "+" : "") + text;
  };

  const cellOf = (row, column) => {
    const mean = written(row[column.field], column);
    const [low, high] = ["_low", "_high"].map((end) => row[column.field + end]);
    const bounded = column.interval && low !== null && low !== undefined && high !== null && high !== undefined;
    return bounded ? `${mean} [${written(low, column)}, ${written(high, column)}]` : mean;
  };

  const element = (name, text, attributes = {}) => {
    const made = document.createElement(name);
    made.textContent = text;
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    return made;
  };

  const fillNumbers = (figure, chart, columns, rows) => {
    const table = document.createElement("table");
    const caption = element("caption", "");
    caption.append(element("span", chart.title));
    table.append(caption);
    const look = (column) => (column.digits === null ? {} : { class: "number" });
    const head = table.createTHead().insertRow();
    head.append(...columns.map((column) => element("th", column.label, { scope: "col", ...look(column) })));
    const body = table.createTBody();
    for (const row of rows) {
      const cells = columns.map((column, i) =>
        element(i ? "td" : "th", cellOf(row, column), { ...(i ? {} : { scope: "row" }), ...look(column) }),
      );
      body.insertRow().append(...cells);
    }
    const box = element("div", "", { class: "scroll", role: "region", tabindex: "0", "aria-label": chart.title });
    box.append(table);
    const details = figure.querySelector(".numbers");
    details.querySelector(".scroll")?.remove();
    details.append(box);
    makeSortable(table);
  };

  // ---- sorting ----

  const NUMBER = /^[<>]?\s*([-+]?[\d,]*\.?\d+(?:e[-+]?\d+)?)/i;
  const valueOf = (text) => {
    const found = NUMBER.exec(text);
    return found ? Number(found[1].replaceAll(",", "")) : null;
  };

  const sortRows = (table, place, descending) => {
    const body = table.tBodies[0];
    const rows = [...body.rows].map((row) => ({ row, text: row.cells[place].textContent.trim() }));
    const numbers = rows.filter(({ text }) => valueOf(text) !== null).length;
    const compare =
      2 * numbers >= rows.length
        ? (a, b) => valueOf(a.text) - valueOf(b.text)
        : (a, b) => a.text.localeCompare(b.text, "en", { numeric: true });
    const isLast = ({ text }) => (2 * numbers >= rows.length ? valueOf(text) === null : text === "—");
    const known = rows.filter((entry) => !isLast(entry)).sort((a, b) => (descending ? compare(b, a) : compare(a, b)));
    body.append(...[...known, ...rows.filter(isLast)].map(({ row }) => row));
  };

  const makeSortable = (table) => {
    const heads = [...table.tHead.rows[0].cells];
    if (table.tBodies[0].rows.length < 2) return;
    heads.forEach((head, place) => {
      const short = head.textContent.length <= 14 ? " short" : "";
      const button = element("button", head.textContent, { type: "button", class: `sort${short}` });
      head.dataset.label = head.textContent;
      head.replaceChildren(button);
      button.addEventListener("click", () => {
        const descending = head.getAttribute("aria-sort") === "ascending";
        heads.forEach((other) => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", descending ? "descending" : "ascending");
        sortRows(table, place, descending);
        status.textContent = `Sorted by ${button.textContent}, ${descending ? "descending" : "ascending"}.`;
      });
    });
  };
  document.querySelectorAll("main table").forEach(makeSortable);

  // ---- paper ----

  let closed = [];
  window.addEventListener("beforeprint", () => {
    closed = [...document.querySelectorAll("details:not([open])")];
    closed.forEach((details) => (details.open = true));
  });
  window.addEventListener("afterprint", () => closed.splice(0).forEach((details) => (details.open = false)));

  form.addEventListener("submit", (event) => event.preventDefault());
  document.addEventListener("change", (event) => event.target.form === form && update());
  update();
})();
