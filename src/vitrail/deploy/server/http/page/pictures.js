// What pages of pictures share: the ways to give a picture, and maps that are laid over it.

import { at, model } from "./page.js";

// How a picture goes to the server; refuses one that is too large.
export function sending(file) {
  const most = (model.limits.body / 2 ** 20).toLocaleString("en", { maximumFractionDigits: 1 });
  if (file.size > model.limits.body) throw new Error(`The picture is larger than ${most} MiB.`);
  return { method: "POST", body: file, headers: { "Content-Type": "application/octet-stream" } };
}

// Shows a picture; `again` is on the button for the next one.
export function present({ file, url }, again) {
  at("picture").src = url;
  at("picture").alt = file.name ? `Your picture ${file.name}` : "Your picture";
  at("figure").hidden = false;
  at("place").classList.add("filled");
  at("choose").firstElementChild.textContent = again;
}

at("picture").addEventListener("error", () => (at("figure").hidden = true)); // the server says what is wrong with it
at("picture").addEventListener("load", ({ target: { naturalWidth: wide, naturalHeight: high, style } }) => {
  style.setProperty("--wide", wide);
  style.setProperty("--ratio", wide / high);
});

// maps

export const numbers = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));

export const fog = (share) => [112, 116, 126, 190 * (1 - share)];

// Lays a canvas over a part of the picture: left, top, right, bottom as shares of its sides.
export function place(canvas, [left, top, right, bottom]) {
  const sides = { left, top, width: right - left, height: bottom - top };
  for (const [side, share] of Object.entries(sides)) canvas.style[side] = `${100 * share}%`;
}

// How clear each patch is, 0 to 1: the highest twentieth is the clearest, or a few patches, often in corners, would leave
// the rest in fog.
export function clearness(map) {
  const inOrder = map.toSorted();
  const [low, high] = [inOrder[0], inOrder[Math.round(0.95 * (map.length - 1))]];
  return map.map((share) => Math.min(1, (share - low) / (high - low || 1)));
}

export function paint(canvas, { rows, columns }, shares, scale, color) {
  const small = new OffscreenCanvas(columns, rows);
  const pixels = new ImageData(columns, rows);
  shares.forEach((share, i) => pixels.data.set(color(share), 4 * i));
  small.getContext("2d").putImageData(pixels, 0, 0);
  [canvas.width, canvas.height] = [columns * scale, rows * scale];
  const context = canvas.getContext("2d");
  context.imageSmoothingQuality = "high";
  context.drawImage(small, 0, 0, canvas.width, canvas.height);
}

// Takes pictures that are chosen, dropped or pasted.
export function onPictures(take) {
  at("file").addEventListener("change", ({ target }) => {
    if (target.files.length) take(target.files);
    target.value = "";
  });
  document.addEventListener("paste", ({ clipboardData }) => clipboardData.files.length && take(clipboardData.files));
  document.addEventListener("dragover", (event) => {
    event.preventDefault();
    at("place").classList.add("over");
  });
  document.addEventListener("dragleave", ({ relatedTarget }) => relatedTarget ?? at("place").classList.remove("over"));
  document.addEventListener("drop", (event) => {
    event.preventDefault();
    at("place").classList.remove("over");
    take(event.dataTransfer.files);
  });
}
