// Shows `data.html` in a frame that may do nothing but open links in tabs of their own.

export default function (component) {
  const { data, parentElement } = component;
  const frame = document.createElement("iframe");
  frame.setAttribute("sandbox", "allow-popups allow-popups-to-escape-sandbox");
  frame.setAttribute("referrerpolicy", "no-referrer");
  frame.title = data.label;
  frame.srcdoc = data.html;
  parentElement.querySelector(".holder").replaceChildren(frame);
}
