// The side panel: the chosen span's facts, its token gaps as dots, who delayed it, attributes.

const shown = new WeakMap();

function list(pairs) {
  const node = element("dl");
  for (const [key, value] of pairs) node.append(element("dt", "", key), element("dd", "", value));
  return node;
}

// One dot a chunk: across, when it came; up, how long after the one before, by magnitude.
function drawRug(canvas, offsets) {
  const { width, height } = canvas.getBoundingClientRect();
  if (!width) return;
  const scale = window.devicePixelRatio || 1;
  canvas.width = width * scale;
  canvas.height = height * scale;
  const pen = canvas.getContext("2d");
  pen.fillStyle = getComputedStyle(canvas).color;
  pen.globalAlpha = offsets.length > 300 ? 0.4 : 0.7;
  const gaps = offsets.slice(1).map((at, i) => Math.log10(Math.max(1, at - offsets[i])));
  const low = Math.min(...gaps);
  const range = Math.max(...gaps) - low || 1;
  const radius = 1.7 * scale;
  const across = (at) => radius + (at / offsets.at(-1)) * (canvas.width - 2 * radius);
  const up = (gap) => canvas.height - radius - ((gap - low) / range) * (canvas.height - 2 * radius);
  offsets.forEach((at, i) => {
    pen.beginPath();
    pen.arc(across(at), i ? up(gaps[i - 1]) : canvas.height - radius, radius, 0, 2 * Math.PI);
    pen.fill();
  });
}

function rugNode(rug) {
  const part = element("div", "part");
  const canvas = element("canvas", "rug");
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", `when each chunk came, higher after a longer gap: ${rug.caption}`);
  part.append(element("h4", "", "Token gaps"), canvas, element("p", "hint", rug.caption));
  new ResizeObserver(() => drawRug(canvas, rug.offsets)).observe(canvas);
  return part;
}

function delaysNode(delays) {
  const part = element("div", "part");
  part.append(element("h4", "", "Who delayed it"), element("p", "", delays.total));
  const mates = element("dl");
  for (const mate of delays.mates) {
    const name = element("dt");
    const link = element(mate.href ? "a" : "span", "", mate.id);
    if (mate.href) link.setAttribute("href", mate.href);
    name.append(link);
    mates.append(name, element("dd", "", mate.time));
  }
  part.append(mates);
  if (delays.rest) part.append(element("p", "hint", delays.rest));
  return part;
}

function attributesNode(title, pairs) {
  const part = element("div", "part attributes");
  part.append(element("h4", "", title), list(pairs));
  return part;
}

export default function (component) {
  const { data, parentElement } = component;
  const panel = parentElement.querySelector(".panel");
  const told = JSON.stringify(data);
  if (shown.get(panel) === told) return;
  shown.set(panel, told);
  if (!data?.facts) {
    panel.replaceChildren(element("p", "hint", "Select a row to see its facts."));
    return;
  }
  const kind = element("p", "kind");
  kind.append(data.colour ? painted("chip", data) : "", data.kind);
  const parts = [element("h3", "", data.name), kind, list(data.facts)];
  if (data.standing) parts.push(element("p", "standing", data.standing));
  if (data.delays) parts.push(delaysNode(data.delays));
  if (data.rug) parts.push(rugNode(data.rug));
  if (data.attributes.length) parts.push(attributesNode("Attributes", data.attributes));
  else if (data.empty) parts.push(element("p", "hint", data.empty));
  if (data.engine.length) parts.push(attributesNode("The engine's span", data.engine));
  panel.replaceChildren(...parts);
  panel.scrollTop = 0;
}
