// Sends a picture to the server that this page came from, and lays the mask that it answers over the picture.

import { ask, at, begin, complain, meet, model, part, say } from "./page.js";
import { numbers, onPictures, present, sending } from "./pictures.js";

const BEHIND = 40; // how opaque other classes are while one is pointed at, of 255
const LEAST = 0.001; // the least share that is shown as it is
const percent = new Intl.NumberFormat("en", { style: "percent", minimumFractionDigits: 1, maximumFractionDigits: 1 });

let shown = null; // the picture: its file, its answer, and the mask as a PNG
let asking = 0; // the number of the last question, whose answer alone is shown
const off = new Set(); // classes that are switched off, by their index

const link = (content) => URL.createObjectURL(new Blob(content, { type: "image/png" }));

async function take([file]) {
  if (!file) return complain(new Error("That is no picture file."));
  if (shown) [shown.url, at("mask").src, at("save").href].forEach(URL.revokeObjectURL);
  const [number, picture] = [++asking, { file, url: URL.createObjectURL(file) }];
  const isLate = () => number !== asking;
  shown = picture;
  present(picture, "Choose another");
  at("answer").hidden = at("mask").hidden = true;
  try {
    if (!model) await meet();
    const sent = sending(file);
    say("Segmenting…", true);
    const answer = await ask("predict", sent, () => isLate() || say("The server is busy: trying again…", true));
    if (!isLate()) show(Object.assign(picture, { answer, png: numbers(answer.mask) }));
  } catch (error) {
    if (!isLate()) complain(error);
  }
}

function show({ file, png, answer: { width, height, window, areas } }) {
  const [seen, pixels] = [window ? `in windows of ${window[1]}×${window[0]}` : "as a whole", `${width}×${height} pixels`];
  const drawn = png[25] === 3; // an indexed PNG; of more than 255 classes it has 16 bits
  say(`${pixels}, segmented ${seen}.${drawn ? "" : " A mask of so many classes is not drawn here, but can be saved."}`);
  at("areas").replaceChildren(...areas.map(row));
  at("save").href = link([png]);
  at("save").download = `${file.name?.replace(/\.[^.]*$/, "") || "picture"}-mask.png`;
  at("answer").hidden = false;
  at("mask").hidden = !drawn;
  if (drawn) paint();
}

function row({ index, class: name, pixels, fraction, color }) {
  const input = Object.assign(part("input"), { type: "checkbox", checked: !off.has(index) });
  const [patch, title, track] = [part("i"), part("span", name), part("span", part("span"))];
  const share = part("span", fraction < LEAST ? `<${percent.format(LEAST)}` : percent.format(fraction));
  [title.className, track.className, share.className] = ["name", "track", "share"];
  share.title = `${pixels.toLocaleString("en")} pixels`;
  patch.style.background = `rgb(${color})`;
  track.firstElementChild.style.width = `${100 * fraction}%`;
  const label = part("label", input, patch, title, track, share);
  input.addEventListener("change", () => turn([index], input.checked));
  label.addEventListener("pointerenter", () => paint(index));
  label.addEventListener("pointerleave", () => paint());
  return part("li", label);
}

function turn(indices, on) {
  for (const index of indices) off[on ? "delete" : "add"](index);
  paint();
}

function turnAll(on) {
  for (const input of at("areas").querySelectorAll("input")) input.checked = on;
  turn(model.classes.keys(), on);
}

// Draws the classes that are switched on; one that is pointed at alone, with the others far behind.
function paint(pointed = null) {
  if (at("mask").hidden) return;
  const alone = pointed !== null && !off.has(pointed);
  const opacities = model.classes.map((_, index) => (off.has(index) ? 0 : alone && index !== pointed ? BEHIND : 255));
  URL.revokeObjectURL(at("mask").src);
  at("mask").src = link(withOpacities(shown.png, opacities));
}

const fade = () => (at("mask").style.opacity = at("opacity").value / 100);

// The parts of an indexed PNG with the opacity of each index, as its chunk tRNS in front of the pixels.
function withOpacities(png, opacities) {
  const [IDAT, tRNS] = [0x49444154, 0x74524e53];
  const file = new DataView(png.buffer);
  let place = 8;
  while (file.getUint32(place + 4) !== IDAT) place += 12 + file.getUint32(place);
  const chunk = new DataView(new ArrayBuffer(12 + opacities.length));
  chunk.setUint32(0, opacities.length);
  chunk.setUint32(4, tRNS);
  opacities.forEach((opacity, index) => chunk.setUint8(8 + index, opacity));
  chunk.setUint32(8 + opacities.length, checksum(new Uint8Array(chunk.buffer, 4, 4 + opacities.length)));
  return [png.subarray(0, place), chunk, png.subarray(place)];
}

// CRC-32, as PNG has it.
function checksum(bytes) {
  let sum = ~0;
  for (const byte of bytes) {
    sum ^= byte;
    for (let bit = 0; bit < 8; bit++) sum = (sum >>> 1) ^ (sum & 1 ? 0xedb88320 : 0);
  }
  return ~sum >>> 0;
}

onPictures(take);
at("opacity").addEventListener("input", fade);
at("all").addEventListener("click", () => turnAll(true));
at("none").addEventListener("click", () => turnAll(false));

fade();
begin(({ classes, engine }) => `${classes.length} classes, ${engine}`);
