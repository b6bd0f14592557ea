// Draws `data` as a table. Text from outside goes through textContent only.

function element(tag, className, text) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (text !== undefined) node.textContent = text;
  return node;
}

const LINE_WIDTH = 96;
const LINE_HEIGHT = 22;

function lineNode(points) {
  const most = Math.max(...points.filter((value) => value !== null), Number.MIN_VALUE);
  const place = (value, i) => {
    const x = 1 + ((LINE_WIDTH - 2) * i) / Math.max(points.length - 1, 1);
    return `${x.toFixed(1)} ${(LINE_HEIGHT - 2 - ((LINE_HEIGHT - 4) * value) / most).toFixed(1)}`;
  };
  let path = "";
  points.forEach((value, i) => {
    if (value === null) return;
    const joins = i > 0 && points[i - 1] !== null;
    path += `${joins ? "L" : "M"}${place(value, i)}${joins ? "" : "h0.01"}`;
  });
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("class", "line");
  svg.setAttribute("viewBox", `0 0 ${LINE_WIDTH} ${LINE_HEIGHT}`);
  svg.setAttribute("width", LINE_WIDTH);
  svg.setAttribute("height", LINE_HEIGHT);
  svg.setAttribute("aria-hidden", "true");
  const drawn = document.createElementNS("http://www.w3.org/2000/svg", "path");
  drawn.setAttribute("d", path);
  svg.append(drawn);
  return svg;
}

const PLAIN = { text: "", muted: "", colour: null, is_hatched: false, bar_ratio: null, line: [] };

function cellNode(told, column, row, isFirst) {
  const cell = { ...PLAIN, ...told };
  const node = element("td", column.is_number ? "number" : "");
  const holder = element("div", "cell");
  if (cell.bar_ratio !== null) {
    const bar = element("span", "bar");
    bar.style.width = `${(100 * cell.bar_ratio).toFixed(2)}%`;
    holder.append(bar);
  }
  if (cell.line.length) holder.append(lineNode(cell.line));
  if (cell.colour) {
    const chip = element("span", cell.is_hatched ? "chip hatched" : "chip");
    chip.style.setProperty("--chip", cell.colour);
    holder.append(chip);
  }
  const text = isFirst && row.href ? element("a", "", cell.text) : element("span", "", cell.text);
  if (text.tagName === "A") text.href = row.href;
  holder.append(text);
  if (cell.muted) holder.append(element("span", "muted", cell.muted));
  node.append(holder);
  return node;
}

export default function (component) {
  const { data, parentElement, setTriggerValue } = component;
  const table = element("table");
  table.setAttribute("aria-label", data.label);

  const head = element("tr");
  for (const column of data.columns) {
    const title = element("th", column.is_number ? "number" : "", column.title);
    title.scope = "col";
    head.append(title);
  }
  const thead = element("thead");
  thead.append(head);

  const body = element("tbody");
  for (const row of data.rows) {
    const line = element("tr", row.key ? "opens" : "");
    row.cells.forEach((cell, i) => line.append(cellNode(cell, data.columns[i], row, i === 0)));
    if (row.key) {
      line.addEventListener("click", (event) => {
        // A modified click is the browser's: new tab, new window, download.
        if (event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
        event.preventDefault();
        setTriggerValue("opened", row.key);
      });
    }
    body.append(line);
  }
  table.append(thead, body);
  const holder = parentElement.querySelector(".table");
  holder.replaceChildren(table);
  // What scrolls must be in reach of the keyboard; a link in it is.
  if (!data.rows.some((row) => row.href)) holder.tabIndex = 0;
}
