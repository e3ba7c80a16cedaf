// Sends a picture to the server that this page came from, and shows what the model says and where it looked.

const at = (id) => document.getElementById(id);
const percent = new Intl.NumberFormat("en", { style: "percent", minimumFractionDigits: 1, maximumFractionDigits: 1 });
const TRIES = 4;

let model = null;
let looked = null; // what /attention answered, with its maps as numbers
let current = null; // stops what is asked about the picture before

async function ask(path, options = {}) {
  const token = sessionStorage.getItem("token");
  const headers = { ...options.headers, ...(token && { Authorization: `Bearer ${token}` }) };
  for (let left = TRIES; ; left--) {
    const answer = await fetch(path, { ...options, headers });
    if (answer.ok) return answer.json();
    const problem = await answer.json().catch(() => ({ detail: answer.statusText }));
    if (answer.status === 401) askForToken();
    if (answer.status !== 429 || left <= 1) throw new Error(told(problem));
    say("The server is busy: trying again…", true);
    await new Promise((go) => setTimeout(go, 1000 * Number(answer.headers.get("Retry-After") ?? 1)));
    options.signal?.throwIfAborted();
  }
}

function told(problem) {
  const text = problem.hint ? `${problem.detail}: ${problem.hint}` : String(problem.detail);
  return `${text[0].toUpperCase()}${text.slice(1)}.`;
}

function say(text, busy = false) {
  at("status").textContent = text;
  at("status").classList.toggle("busy", busy);
  at("problem").hidden = true;
}

function complain(error) {
  say("");
  at("problem").textContent = error instanceof TypeError ? "The server does not answer." : error.message;
  at("problem").hidden = false;
}

// the server

function askForToken() {
  sessionStorage.removeItem("token");
  at("entry").hidden = false;
  at("token").focus();
}

async function meet() {
  model = await ask("model");
  at("entry").hidden = true;
  at("name").textContent = document.title = model.name;
  const labels = model.labels.length === 1 ? "1 label" : `${model.labels.length.toLocaleString("en")} labels`;
  at("about").textContent = `${labels}, ${model.engine}`;
}

// a picture

async function take(file) {
  if (!file) return complain(new Error("That is no picture file."));
  current?.abort();
  current = new AbortController();
  const { signal } = current;
  show(file);
  try {
    if (!model) await meet();
    if (file.size > model.limits.body) throw new Error(`The picture is larger than ${mebibytes(model.limits.body)} MiB.`);
    const sent = { method: "POST", body: file, signal, headers: { "Content-Type": "application/octet-stream" } };
    say("Looking…", true);
    const { predictions: [answer] } = await ask("predict?top=5", sent);
    list(answer.predictions);
    if (model.attention) see(await ask("attention", sent));
    say(model.attention ? "" : `No map of where it looked: ${model.unseen}.`);
  } catch (error) {
    if (!signal.aborted) complain(error);
  }
}

const mebibytes = (bytes) => (bytes / 2 ** 20).toLocaleString("en", { maximumFractionDigits: 1 });

function show(file) {
  URL.revokeObjectURL(at("picture").src);
  at("picture").src = URL.createObjectURL(file);
  at("picture").alt = file.name ? `Your picture ${file.name}` : "Your picture";
  at("figure").hidden = false;
  at("place").classList.add("filled");
  at("choose").firstElementChild.textContent = "Choose another";
  at("attention").hidden = at("overlay").hidden = true;
  at("labels").replaceChildren();
  looked = null;
}

at("picture").addEventListener("error", () => (at("figure").hidden = true)); // the server says what is wrong with it

function list(predictions) {
  at("labels").replaceChildren(...predictions.map(({ label, score }) => {
    const item = part("li", part("span", label), part("span", percent.format(score)), part("div", part("span")));
    item.children[1].className = "score";
    item.children[2].className = "track";
    item.children[2].firstElementChild.style.width = `${100 * score}%`;
    return item;
  }));
}

function part(name, ...inside) {
  const made = document.createElement(name);
  made.append(...inside);
  return made;
}

// where the model looked

function see(answer) {
  const bytes = Uint8Array.from(atob(answer.maps), (c) => c.charCodeAt(0));
  looked = { ...answer, bytes, size: answer.rows * answer.columns };
  const [left, top, right, bottom] = answer.seen;
  const places = { left, top, width: right - left, height: bottom - top };
  for (const [side, share] of Object.entries(places)) at("overlay").style[side] = `${100 * share}%`;
  at("layer").max = answer.layers;
  at("layer").value = answer.layers;
  const heads = [part("span", "all"), ...Array.from({ length: answer.heads }, (_, n) => part("span", `${n + 1}`))];
  at("heads").replaceChildren(...heads.map((name, n) => choice(name, n - 1)));
  at("attention").hidden = false;
  draw();
}

function choice(name, head) {
  const input = part("input");
  Object.assign(input, { type: "radio", name: "head", value: head, checked: head < 0 });
  input.setAttribute("aria-label", head < 0 ? "all heads on average" : `head ${head + 1}`);
  const made = part("label", input, part("canvas"), name);
  made.className = "head";
  return made;
}

// How bright each patch is, 0 to 1: the highest twentieth is the brightest, or a few patches, often in corners, would leave
// the rest black. Head -1 is the mean of all.
function map(layer, head) {
  const { bytes, size, heads, largest } = looked;
  const found = new Float64Array(size);
  for (const each of head < 0 ? Array(heads).keys() : [head]) {
    const start = (layer * heads + each) * size;
    for (let i = 0; i < size; i++) found[i] += bytes[start + i] * largest[layer][each];
  }
  const inOrder = found.toSorted();
  const [low, high] = [inOrder[0], inOrder[Math.round(0.95 * (size - 1))]];
  return found.map((share) => Math.min(1, (share - low) / (high - low || 1)));
}

function draw() {
  const layer = Number(at("layer").value) - 1;
  at("which").textContent = `${layer + 1} of ${looked.layers}`;
  at("layer").setAttribute("aria-valuetext", `${layer + 1} of ${looked.layers}`);
  for (const label of at("heads").children) {
    const [input, canvas] = label.children;
    const shares = map(layer, Number(input.value));
    paint(canvas, shares, 4, (share) => [240, 179, 90, 255 * share]);
    if (input.checked) paint(at("overlay"), shares, 24, (share) => [12, 12, 16, 190 * (1 - share)]);
  }
  at("overlay").hidden = !at("shown").checked;
}

function paint(canvas, shares, scale, color) {
  const { rows, columns } = looked;
  const small = new OffscreenCanvas(columns, rows);
  const pixels = new ImageData(columns, rows);
  shares.forEach((share, i) => pixels.data.set(color(share), 4 * i));
  small.getContext("2d").putImageData(pixels, 0, 0);
  [canvas.width, canvas.height] = [columns * scale, rows * scale];
  const context = canvas.getContext("2d");
  context.imageSmoothingQuality = "high";
  context.drawImage(small, 0, 0, canvas.width, canvas.height);
}

// the ways to give a picture, and to choose what is shown

at("file").addEventListener("change", ({ target }) => {
  if (target.files.length) take(target.files[0]);
  target.value = "";
});
document.addEventListener("paste", ({ clipboardData }) => clipboardData.files.length && take(clipboardData.files[0]));
document.addEventListener("dragover", (event) => {
  event.preventDefault();
  at("place").classList.add("over");
});
document.addEventListener("dragleave", ({ relatedTarget }) => relatedTarget ?? at("place").classList.remove("over"));
document.addEventListener("drop", (event) => {
  event.preventDefault();
  at("place").classList.remove("over");
  take(event.dataTransfer.files[0]);
});
at("layer").addEventListener("input", draw);
at("heads").addEventListener("change", draw);
at("shown").addEventListener("change", draw);
at("entry").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem("token", at("token").value.trim());
  meet().then(() => say("Nothing yet: it waits for a picture."), complain);
});

at("example").textContent = `curl -F images=@cat.jpg ${new URL("predict", location)}`;
meet().catch(complain);
