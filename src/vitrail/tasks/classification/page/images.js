// Sends pictures to the server that this page came from, and shows what the model says and where it looked.

import { ask, at, begin, complain, meet, model, part, say } from "./page.js";
import { clearness, fog, numbers, onPictures, paint, place, present, sending } from "./pictures.js";

const percent = new Intl.NumberFormat("en", { style: "percent", minimumFractionDigits: 1, maximumFractionDigits: 1 });
const KEPT = 50; // pictures that can be returned to
const [SHOWN, MOST] = [5, 100]; // best labels that are shown, and labels that the server gives at most
const [ALL, RELEVANCE] = [-1, -2]; // in place of a head

let looked = null; // what /attention answered about the picture shown, with its maps as numbers
let shown = null; // one of asked
let asked = []; // the pictures of this tab, each with its file, its address here, and what was said of it
let last = Promise.resolve(); // the end of all that is asked so far: one picture after the other

// pictures

function take(files) {
  const taken = [...files].slice(0, KEPT).map((file) => ({ file, url: URL.createObjectURL(file) }));
  if (!taken.length) return complain(new Error("That is no picture file."));
  at("left-out").hidden = files.length <= KEPT;
  at("left-out").textContent = `The first ${KEPT} of ${files.length} pictures are asked about: no more are kept at a time.`;
  for (const picture of taken) {
    remember(picture);
    enqueue(picture);
  }
  show(taken[0]);
}

function enqueue(picture) {
  delete picture.problem;
  picture.said = ["Waiting…", true];
  last = last.then(() => askAbout(picture));
}

async function askAbout(picture) {
  if (!asked.includes(picture)) return; // it has left the history
  const busy = () => tell(picture, "The server is busy: trying again…", true);
  try {
    if (!model) await meet();
    const sent = sending(picture.file);
    tell(picture, "Looking…", true);
    if (!picture.answer) await predict(picture, sent, busy);
    if (model.attention) picture.seen = await ask("attention", sent, busy);
    if (picture === shown && picture.seen) see(picture.seen);
    const none = picture.answer.labels?.length === 0 && "No label reaches its threshold.";
    const unseen = !model.attention && `No map of where it looked: ${model.unseen}.`;
    tell(picture, [none, unseen].filter(Boolean).join(" "));
  } catch (error) {
    picture.problem = error;
    if (!picture.answer) picture.entry.lastElementChild.textContent = "no answer";
    if (picture === shown) complain(error);
  }
}

async function predict(picture, sent, busy) {
  const { predictions: [answer] } = await ask(`predict?top=${model.multi_label ? MOST : SHOWN}`, sent, busy);
  picture.answer = answer;
  const first = answer.predictions.find(({ label }) => answer.labels?.includes(label) ?? true);
  picture.entry.lastElementChild.textContent = first ? `${first.label} ${percent.format(first.score)}` : "no label";
  if (picture === shown) list(answer);
}

function tell(picture, ...said) {
  picture.said = said;
  if (picture === shown) say(...said);
}

function remember(picture) {
  const image = part("img");
  Object.assign(image, { src: picture.url, alt: picture.file.name });
  picture.entry = part("button", image, part("span", "…"));
  Object.assign(picture.entry, { type: "button", title: picture.file.name });
  picture.entry.addEventListener("click", () => {
    if (picture.problem) enqueue(picture);
    show(picture);
  });
  asked = [picture, ...asked];
  for (const old of asked.splice(KEPT)) URL.revokeObjectURL(old.url);
  at("past").replaceChildren(...asked.map(({ entry }) => part("li", entry)));
  at("history").hidden = asked.length < 2;
}

function show(picture) {
  shown = picture;
  looked = null;
  for (const { entry } of asked) entry.removeAttribute("aria-current");
  picture.entry.setAttribute("aria-current", "true");
  present(picture, "Choose others");
  at("attention").hidden = at("overlay").hidden = true;
  list(picture.answer);
  if (picture.seen) see(picture.seen);
  if (picture.problem) complain(picture.problem);
  else say(...picture.said);
}

// The best labels; where there may be several, all that reach their thresholds, which are marked.
function list({ predictions, labels } = { predictions: [] }) {
  const reached = new Set(labels ?? predictions.slice(0, 1).map(({ label }) => label));
  const items = predictions.filter(({ label }, rank) => rank < SHOWN || reached.has(label));
  at("labels").replaceChildren(...items.map(({ label, score }) => {
    const item = part("li", part("span", label), part("span", percent.format(score)), part("div", part("span")));
    item.classList.toggle("accepted", reached.has(label));
    if (labels && reached.has(label)) item.firstElementChild.prepend(tick());
    item.children[1].className = "score";
    item.children[2].className = "track";
    item.children[2].firstElementChild.style.width = `${100 * score}%`;
    return item;
  }));
}

function tick() {
  const made = part("span", "✓ ");
  made.title = made.ariaLabel = "reaches its threshold";
  made.role = "img";
  return made;
}

// where the model looked

function see(answer) {
  looked = { ...answer, bytes: numbers(answer.maps), size: answer.rows * answer.columns };
  if (answer.relevance) looked.relevance = numbers(answer.relevance);
  place(at("overlay"), answer.seen);
  at("layer").max = answer.layers;
  at("layer").value = answer.layers;
  const heads = Array.from({ length: answer.heads }, (_, n) => n);
  at("heads").replaceChildren(...[ALL, ...heads, ...(answer.relevance ? [RELEVANCE] : [])].map(choice));
  at("speaks").hidden = !answer.relevance;
  at("attention").hidden = false;
  draw();
}

function choice(head) {
  const input = part("input");
  const [name, said] = { [ALL]: ["all", "all heads on average"], [RELEVANCE]: ["relevance", "relevance"] }[head]
    ?? [`${head + 1}`, `head ${head + 1}`];
  Object.assign(input, { type: "radio", name: "head", value: head, checked: head === ALL });
  input.setAttribute("aria-label", said);
  const made = part("label", input, part("canvas"), part("span", name));
  made.className = "head";
  return made;
}

function map(layer, head) {
  const { bytes, size, heads, largest } = looked;
  const found = head === RELEVANCE ? Float64Array.from(looked.relevance) : new Float64Array(size);
  for (const each of head === RELEVANCE ? [] : head === ALL ? Array(heads).keys() : [head]) {
    const start = (layer * heads + each) * size;
    for (let i = 0; i < size; i++) found[i] += bytes[start + i] * largest[layer][each];
  }
  return clearness(found);
}

function draw() {
  const layer = Number(at("layer").value) - 1;
  at("which").textContent = `${layer + 1} of ${looked.layers}`;
  at("layer").setAttribute("aria-valuetext", `${layer + 1} of ${looked.layers}`);
  for (const label of at("heads").children) {
    const [input, canvas] = label.children;
    const shares = map(layer, Number(input.value));
    paint(canvas, looked, shares, 4, (share) => [240, 179, 90, 255 * share]);
    if (!input.checked) continue;
    at("layer").disabled = Number(input.value) === RELEVANCE;
    paint(at("overlay"), looked, shares, 24, fog);
  }
  at("overlay").hidden = !at("shown").checked;
}

// the ways to give a picture, and to choose what is shown

onPictures(take);
at("layer").addEventListener("input", draw);
at("heads").addEventListener("change", draw);
at("shown").addEventListener("change", draw);

begin(({ labels, engine }) => `${labels.length === 1 ? "1 label" : `${labels.length.toLocaleString("en")} labels`}, ${engine}`);
