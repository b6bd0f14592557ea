// What the scripts of a trace share. Names and attributes of spans are hostile input: text goes
// through textContent only.

function element(tag, className, text) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (text !== undefined && text !== null) node.textContent = text;
  return node;
}

function painted(className, look) {
  const node = element("span", look.is_hatched ? `${className} hatched` : className);
  node.style.setProperty("--stage", look.colour);
  return node;
}

const percent = (ratio) => `${(100 * ratio).toFixed(4)}%`;
