// Has the server that this page came from make pictures, and shows each as it comes: first a rough one of a few steps.

import { ask, at, begin, complain, meet, model, part, say } from "./page.js";

const [ROUGH, WORTH] = [4, 12]; // steps of a rough picture, and from how many steps on it is shown first
const [FEW, MOST, SMALL] = [24, 12, 128]; // classes that are chips; pictures at a time; pixels of a side that are shown as squares
const ALL = "all";

let asking = null; // ends the requests for the last pictures
const urls = []; // of the pictures that are shown

// what to make

function introduce({ classes, size, guidance, limits, engine }) {
  const choices = [[ALL, "all"], ...classes.map((name, index) => [String(index), name])];
  const chips = classes.length <= FEW;
  at("of").hidden = !classes.length;
  at("chips").hidden = !chips;
  at("list").hidden = chips;
  at("chips").replaceChildren(...(chips ? choices.map(chip) : []));
  at("list").replaceChildren(...(chips ? [] : choices.map(([value, name]) => new Option(name, value))));
  at("guiding").hidden = !guidance;
  at("guidance").max = Math.min(10, limits.guidance);
  at("steps").max = Math.min(100, limits.steps);
  at("count").max = Math.min(MOST, limits.images);
  sliders.forEach(told);
  document.documentElement.style.setProperty("--ratio", `${size[1]} / ${size[0]}`);
  const of = classes.length ? ` of ${classes.length.toLocaleString("en")} classes` : "";
  return `makes pictures${of}, ${size[1]}×${size[0]}, ${engine}`;
}

function chip([value, name]) {
  const input = Object.assign(part("input"), { type: "radio", name: "class", value, checked: value === ALL });
  return part("label", input, part("span", name));
}

const sliders = [...document.querySelectorAll(".slider input")];
const told = (slider) => (slider.nextElementSibling.value = slider.value);

function wishes() {
  const chosen = document.querySelector("#chips :checked")?.value ?? at("list").value;
  const { classes } = model;
  const first = Number(at("seed").value);
  return Array.from({ length: Number(at("count").value) }, (_, number) => ({
    ...(classes.length && { class: chosen === ALL ? number % classes.length : Number(chosen) }),
    ...(model.guidance && { guidance: Number(at("guidance").value) }),
    seed: first + number,
    steps: Number(at("steps").value),
    sampler: "dpm++",
  }));
}

// the pictures

async function make() {
  asking?.abort();
  const own = (asking = new AbortController());
  try {
    if (!model) await meet();
    if (!at("keep").checked) at("seed").value = crypto.getRandomValues(new Uint32Array(1))[0] % 1_000_000;
    urls.splice(0).forEach(URL.revokeObjectURL);
    const wanted = wishes();
    const frames = wanted.map(frame);
    at("pictures").replaceChildren(...frames);
    say("Making pictures…", true);
    await Promise.all(wanted.map((wish, number) => fill(frames[number], wish, own)));
    const [{ seed }, last] = [wanted[0], wanted.at(-1)];
    if (own === asking) say(wanted.length === 1 ? `One picture, of seed ${seed}.` : `${wanted.length} pictures, of seeds ${seed} to ${last.seed}.`);
  } catch (error) {
    if (own !== asking) return;
    own.abort();
    complain(error);
  }
}

async function fill(frame, wish, own) {
  const of = frame.firstElementChild;
  if (wish.steps >= WORTH) {
    show(frame, await sampled({ ...wish, steps: ROUGH }, own));
    of.classList.add("rough");
  }
  show(frame, await sampled(wish, own));
  of.classList.remove("rough");
  frame.querySelector("a").hidden = false;
}

async function sampled(wish, own) {
  const sent = { method: "POST", body: JSON.stringify(wish), headers: { "Content-Type": "application/json" }, signal: own.signal };
  const busy = () => own !== asking || say("The server is busy: trying again…", true);
  const { images: [{ png }] } = await ask("sample", sent, busy);
  const url = URL.createObjectURL(new Blob([Uint8Array.from(atob(png), (byte) => byte.charCodeAt(0))], { type: "image/png" }));
  if (own === asking) urls.push(url);
  return url;
}

function frame(wish) {
  const name = model.classes.length ? model.classes[wish.class] : "";
  const image = Object.assign(part("img"), { alt: `${name || "A picture"} of seed ${wish.seed}`, hidden: true });
  image.classList.toggle("small", Math.max(...model.size) <= SMALL);
  const of = part("div", image, noise());
  of.className = "frame";
  const keep = Object.assign(part("button", `seed ${wish.seed}`), { type: "button", title: "Keep this seed" });
  keep.addEventListener("click", () => {
    [at("seed").value, at("keep").checked, at("count").value] = [wish.seed, true, 1];
    sliders.forEach(told);
    choose(wish.class);
    make();
  });
  const save = Object.assign(part("a", "save"), { download: `${[name, wish.seed].filter(String).join("-")}.png`, hidden: true });
  const words = part("div", ...(name ? [part("b", name)] : []), keep, save);
  words.className = "told";
  return part("li", of, words);
}

function choose(index) {
  if (index === undefined) return;
  const chip = document.querySelector(`#chips [value="${index}"]`);
  if (chip) chip.checked = true;
  else at("list").value = index;
}

function show(frame, url) {
  const image = frame.querySelector("img");
  [image.src, image.hidden, frame.querySelector("a").href] = [url, false, url];
  frame.firstElementChild.classList.add("there");
}

// What a picture begins with, in its place.
function noise() {
  const canvas = Object.assign(part("canvas"), { width: 32, height: 32, className: "small" });
  const grain = canvas.getContext("2d").createImageData(32, 32);
  grain.data.forEach((_, n) => (grain.data[n] = n % 4 === 3 ? 255 : 128 + 60 * (Math.random() + Math.random() + Math.random() - 1.5)));
  canvas.getContext("2d").putImageData(grain, 0, 0);
  canvas.setAttribute("aria-hidden", true);
  return canvas;
}

// the ways to ask

at("wish").addEventListener("submit", (event) => {
  event.preventDefault();
  make();
});
at("of").addEventListener("change", make);
for (const slider of sliders) {
  slider.addEventListener("input", () => told(slider));
  slider.addEventListener("change", () => at("keep").checked && at("pictures").childElementCount && make());
}

begin(introduce);
