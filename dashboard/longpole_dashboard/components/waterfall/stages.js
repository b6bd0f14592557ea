// The stages of a trace against its route, each with a slider: what if it were faster?

const drawn = new WeakMap();

const COLUMNS = [
  ["stage", "", "stage"],
  ["on the path", "number", "time on the critical path: these sum to the wall time"],
  ["share", "number", "of the wall time"],
  ["in all", "number", "time of all its spans, on the path or off"],
  ["usual", "number", "median of workflows like it"],
  ["against it", "number", "on the path, minus the usual"],
  ["what if it were faster", "", "the trace replayed, everything else equal"],
];

function sliderCell(row, percents) {
  const cell = element("td");
  if (!row.saved.length) return cell;
  const box = element("div", "what-if");
  const slider = element("input");
  slider.type = "range";
  slider.min = 0;
  slider.max = percents.length - 1;
  slider.step = 1;
  slider.value = 0;
  slider.setAttribute("aria-label", `${row.label}: faster by`);
  const said = element("output");
  const show = () => {
    const at = Number(slider.value);
    const share = `${percents[at]} %`;
    slider.setAttribute("aria-valuetext", `${share}: ${row.saved[at]}`);
    said.textContent = at ? `${share}: ${row.saved[at]}` : "0 %";
  };
  slider.addEventListener("input", show);
  show();
  box.append(slider, said);
  cell.append(box);
  return cell;
}

function stageRow(row, percents) {
  const line = element("tr");
  const name = element("th");
  name.scope = "row";
  name.title = row.doc;
  name.append(painted("chip", row), row.label);
  line.append(name);
  for (const value of [row.time, row.share, row.total, row.usual, row.change]) {
    line.append(element("td", "number", value));
  }
  line.append(sliderCell(row, percents));
  return line;
}

export default function (component) {
  const { data, parentElement } = component;
  const root = parentElement.querySelector(".stages");
  const told = JSON.stringify(data);
  if (drawn.get(root) === told) return;
  drawn.set(root, told);
  const table = element("table");
  table.setAttribute("aria-label", data.label);
  const head = element("tr");
  for (const [title, className, doc] of COLUMNS) {
    const cell = element("th", className, title);
    cell.scope = "col";
    cell.title = doc;
    head.append(cell);
  }
  const thead = element("thead");
  thead.append(head);
  const body = element("tbody");
  body.append(...data.rows.map((row) => stageRow(row, data.percents)));
  table.append(thead, body);
  root.replaceChildren(table);
}
