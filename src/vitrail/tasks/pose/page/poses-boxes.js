// Boxes that are drawn over a picture with the pointer.

import { at } from "./page.js";

const FARTHER = 5; // pixels of the screen that the pointer goes at least where it draws a box

export function shape(name, attributes, className = "") {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (className) made.setAttribute("class", className);
  return made;
}

// Calls `add` with left, top, width and height of every box; `sizeOf` gives the picture's sides, or null where there is none.
export function onBox(sizeOf, add) {
  const drawing = at("drawing");
  let start = null; // where the pointer began

  const under = ({ clientX, clientY }) => {
    const { left, top, width, height } = drawing.getBoundingClientRect();
    const [wide, high] = start.size;
    const [x, y] = [((clientX - left) / width) * wide, ((clientY - top) / height) * high];
    return [Math.min(wide, Math.max(0, x)), Math.min(high, Math.max(0, y))];
  };
  const box = (event) => {
    const [[x, y], [other, below]] = [start.place, under(event)];
    return [Math.min(x, other), Math.min(y, below), Math.abs(x - other), Math.abs(y - below)].map((n) => Math.round(10 * n) / 10);
  };
  const end = () => {
    start?.rect?.remove();
    start = null;
  };

  at("figure").addEventListener("pointerdown", (event) => {
    const size = sizeOf();
    if (event.button !== 0 || !event.isPrimary || !size) return;
    start = { size, x: event.clientX, y: event.clientY };
    start.place = under(event);
  });
  document.addEventListener("pointermove", (event) => { // the box may end beyond the picture
    if (!start || !event.isPrimary) return;
    if (!start.rect) {
      if (Math.hypot(event.clientX - start.x, event.clientY - start.y) < FARTHER) return;
      drawing.append((start.rect = shape("rect", {})));
    }
    const [x, y, width, height] = box(event);
    for (const [key, value] of Object.entries({ x, y, width, height })) start.rect.setAttribute(key, value);
  });
  document.addEventListener("pointerup", (event) => {
    if (!start || !event.isPrimary) return;
    const drawn = start.rect && box(event);
    end();
    if (drawn && drawn[2] >= 1 && drawn[3] >= 1) add(drawn);
  });
  document.addEventListener("pointercancel", end);
}
