// Sends a picture to the server that this page came from, draws the skeletons that it finds, and shows where it looked.

import { ask, at, begin, complain, meet, model, part, say } from "./page.js";
import { onBox, shape } from "./poses-boxes.js";
import { clearness, fog, numbers, onPictures, paint, place, present, sending } from "./pictures.js";

const CONFIDENT = 0.3; // joints with a lower score are faint
const score = new Intl.NumberFormat("en", { minimumFractionDigits: 2, maximumFractionDigits: 2 });

let shown = null; // the picture: its file, its boxes, and what was answered
let asking = 0; // the number of the last question, whose answer alone is shown
let [person, joint] = [0, 0]; // which are chosen
let sides = []; // of every joint: left, right, middle

const readable = (name) => name.replaceAll("_", " ");

function introduce({ joints, pairs, engine }) {
  const [left, right] = [0, 1].map((side) => new Set(pairs.map((pair) => pair[side])));
  sides = joints.map((name) => (left.has(name) ? "left" : right.has(name) ? "right" : "middle"));
  return `${joints.length} joints, ${engine}`;
}

// questions

function take(files) {
  const [file] = files;
  if (!file) return complain(new Error("That is no picture file."));
  if (shown) URL.revokeObjectURL(shown.url);
  shown = { file, url: URL.createObjectURL(file), boxes: [], answered: [] };
  [person, joint] = [0, 0];
  present(shown, "Choose another");
  askAbout();
}

const within = (boxes) => (boxes.length ? `?boxes=${encodeURIComponent(JSON.stringify(boxes))}` : "");
const busy = () => say("The server is busy: trying again…", true);

async function askAbout(refused = null) { // an error to tell beside the answer
  const [number, picture] = [++asking, shown];
  const isLate = () => number !== asking;
  forget();
  try {
    if (!model) await meet();
    const sent = sending(picture.file);
    say("Looking…", true);
    const answer = await ask(`predict${within(picture.boxes)}`, sent, () => isLate() || busy());
    if (isLate()) return;
    picture.answer = answer;
    picture.answered = [...picture.boxes];
    person = Math.min(person, answer.people.length - 1);
    show();
    if (refused) complain(refused);
    else say(model.attention ? "" : `No map of where it looked: ${model.unseen}.`);
  } catch (error) {
    if (isLate()) return;
    if (error.status === 422 && removeNew(picture)) return askAbout(error);
    complain(error);
    mark();
  }
}

// Takes the boxes off that have had no answer yet; says whether there were any.
function removeNew(picture) {
  const before = picture.boxes.length;
  picture.boxes = picture.boxes.filter((box) => picture.answered.includes(box));
  return picture.boxes.length < before;
}

// Nothing is known of the picture with these boxes yet.
function forget() {
  delete shown.answer;
  at("tip").hidden = true;
  shown.looks = new Map();
  at("people").replaceChildren();
  at("joints").replaceChildren();
  at("attention").hidden = at("overlay").hidden = at("key").hidden = true;
  draw();
}

// what is shown

function show() {
  const { people } = shown.answer;
  const several = people.length > 1 || shown.boxes.length > 0;
  at("people").replaceChildren(...(several ? people.map(entry) : []));
  at("key").hidden = false;
  at("attention").hidden = !model.attention;
  mark();
  choose(person, joint);
}

function entry(found, number) {
  const chosen = part("button", `Person ${number + 1}, ${score.format(found.score)}`);
  const gone = part("button", "✕");
  for (const button of [chosen, gone]) button.type = "button";
  gone.setAttribute("aria-label", `Remove person ${number + 1}`);
  gone.title = "Remove";
  chosen.addEventListener("click", () => choose(number, joint));
  gone.addEventListener("click", () => {
    shown.boxes.splice(number, 1);
    askAbout();
  });
  return part("span", chosen, gone);
}

function mark() {
  const { boxes } = shown;
  at("marking").hidden = false;
  at("taken").textContent = boxes.length
    ? "Drag over the picture to mark more people, each from head to foot."
    : "The picture is taken for one person, from rim to rim. Drag over it to mark people, each from head to foot.";
  at("whole").hidden = !boxes.length;
}

function choose(number, which) {
  [person, joint] = [number, which];
  for (const [n, { firstElementChild: button }] of [...at("people").children].entries()) {
    button.setAttribute("aria-pressed", n === person);
  }
  const found = shown.answer.people[person];
  at("joints").replaceChildren(...Object.entries(found.joints).map(row));
  at("which-joint").textContent = readable(model.joints[joint]);
  draw();
  look();
}

function row([name, [, , sure]], number) {
  const dot = part("i");
  dot.className = sides[number];
  const [track, value] = [part("span", part("span")), part("span", score.format(sure))];
  [track.className, value.className] = ["track", "score"];
  track.firstElementChild.style.width = `${100 * Math.min(1, Math.max(0, sure))}%`;
  const button = part("button", dot, part("span", readable(name)), track, value);
  button.type = "button";
  button.setAttribute("aria-pressed", number === joint);
  button.classList.toggle("faint", sure < CONFIDENT);
  button.addEventListener("click", () => {
    choose(person, number);
    at("joints").children[number].firstElementChild.focus();
  });
  button.addEventListener("pointerenter", () => point(person, number));
  button.addEventListener("pointerleave", leave);
  return part("li", button);
}

// the drawing

const size = () => shown.answer?.size ?? [at("picture").naturalWidth || 1, at("picture").naturalHeight || 1];

function draw() {
  const [width, height] = size();
  const { people = [], limbs = [] } = shown.answer ?? {};
  const drawing = at("drawing");
  drawing.setAttribute("viewBox", `0 0 ${width} ${height}`);
  drawing.replaceChildren(...shown.boxes.map(([x, y, w, h]) => shape("rect", { x, y, width: w, height: h })));
  for (const [number, found] of people.entries()) drawing.append(skeleton(found, limbs, number));
  const count = people.length === 1 ? "The skeleton of 1 person" : `The skeletons of ${people.length} people`;
  drawing.setAttribute("aria-label", people.length ? `${count}; the list has the joints` : "No skeleton yet");
}

// One person: limbs with a white rim, then joints, each larger to the pointer than to the eye.
function skeleton(found, limbs, number) {
  const [width, height] = size();
  const line = Math.min(0.008 * Math.sqrt(width * height), 0.025 * Math.sqrt(found.bbox[2] * found.bbox[3]));
  const whole = shape("g", {}, number === person ? "" : "other");
  const places = Object.values(found.joints).map(([x, y, sure]) => [x + 0.5, y + 0.5, sure < CONFIDENT ? "faint" : ""]);
  const ends = limbs.map((names) => names.map((name) => model.joints.indexOf(name)));
  for (const rim of [true, false]) {
    for (const [one, other] of ends) {
      const [[x1, y1, faint], [x2, y2, too]] = [places[one], places[other]];
      const kind = rim ? "rim" : sideOf(one, other);
      const stroke = rim ? 1.8 * line : line;
      whole.append(shape("line", { x1, y1, x2, y2, "stroke-width": stroke }, `${kind} ${faint || too}`));
    }
    for (const [n, [cx, cy, faint]] of places.entries()) {
      whole.append(shape("circle", { cx, cy, r: rim ? 1.3 * line : 0.85 * line }, `${rim ? "rim" : sides[n]} ${faint}`));
    }
  }
  if (number === person) whole.append(shape("circle", { cx: places[joint][0], cy: places[joint][1], r: 2.6 * line }, "ring"));
  whole.append(...places.map(([cx, cy], n) => target(shape("circle", { cx, cy, r: 3 * line }, "hit"), number, n)));
  return whole;
}

function sideOf(one, other) {
  const found = new Set([sides[one], sides[other]]);
  found.delete("middle");
  return found.size === 1 ? [...found][0] : "middle";
}

function target(circle, number, which) {
  circle.addEventListener("pointerenter", () => point(number, which));
  circle.addEventListener("pointerleave", leave);
  circle.addEventListener("click", () => choose(number, which));
  return circle;
}

// Tells the name and the score of a joint beside it.
function point(number, which) {
  const [width, height] = size();
  const [name, [x, y, sure]] = Object.entries(shown.answer.people[number].joints)[which];
  at("tip").textContent = `${readable(name)} ${score.format(sure)}`;
  at("tip").hidden = false;
  const half = at("tip").offsetWidth / 2 / at("figure").clientWidth;
  at("tip").style.left = `${100 * Math.min(1 - half, Math.max(half, (x + 0.5) / width))}%`;
  at("tip").style.top = `${100 * Math.min(1, Math.max(0, (y + 0.5) / height))}%`;
  at("tip").classList.toggle("below", y / height < 0.15);
  if (number === person) at("joints").children[which].firstElementChild.classList.add("pointed");
}

function leave() {
  at("tip").hidden = true;
  for (const { firstElementChild: button } of at("joints").children) button.classList.remove("pointed");
}

// boxes

function add(box) {
  if (shown.boxes.length >= model.limits.people) {
    return complain(new Error(`${model.limits.people} people are found at a time, and no more.`));
  }
  shown.boxes.push(box);
  person = shown.boxes.length - 1;
  askAbout();
}

at("box").addEventListener("submit", (event) => {
  event.preventDefault();
  add(["left", "top", "width", "height"].map((name) => at("box").elements[name].valueAsNumber));
});
at("whole").addEventListener("click", () => {
  shown.boxes = [];
  person = 0;
  askAbout();
});

// where the model looked

async function look() {
  at("overlay").hidden = at("layers").hidden = true;
  if (!model.attention || !at("shown").checked) return;
  const [{ looks }, who] = [shown, person];
  if (!looks.has(who)) looks.set(who, mapsOf(shown, who));
  try {
    const found = await looks.get(who);
    if (looks !== shown.looks || who !== person) return; // of another picture, other boxes, or somebody else
    if (at("problem").hidden) say("");
    lay(found);
  } catch (error) {
    looks.delete(who);
    if (looks === shown.looks) complain(error);
  }
}

async function mapsOf({ looks, boxes, file }, who) {
  say("Looking where it looked…", true);
  const wait = () => looks === shown.looks && busy();
  const answer = await ask(`attention${within(boxes.slice(who, who + 1))}`, sending(file), wait);
  return { ...answer, bytes: numbers(answer.maps) };
}

function lay({ bytes, layers, rows, columns, seen }) {
  const layer = at("layer");
  if (Number(layer.max) !== layers) [layer.max, layer.value] = [layers, layers];
  at("which").textContent = `${layer.value} of ${layers}`;
  layer.setAttribute("aria-valuetext", `${layer.value} of ${layers}`);
  const first = ((layer.value - 1) * model.joints.length + joint) * rows * columns;
  place(at("overlay"), seen);
  paint(at("overlay"), { rows, columns }, clearness(Float64Array.from(bytes.subarray(first, first + rows * columns))), 24, fog);
  at("overlay").hidden = at("layers").hidden = !at("shown").checked;
}

onPictures(take);
onBox(() => (shown && model ? size() : null), add);
at("layer").addEventListener("input", look);
at("shown").addEventListener("change", look);

begin(introduce);
