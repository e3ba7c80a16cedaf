// Sends a picture to the server that this page came from, shows the sentence about it, and for each word where it looked.

import { ask, at, begin, complain, meet, model, part, say } from "./page.js";
import { clearness, fog, numbers, onPictures, paint, place, present, sending } from "./pictures.js";

const percent = new Intl.NumberFormat("en", { style: "percent", maximumFractionDigits: 0 });

let asking = 0; // the number of the last question, whose answer alone is shown
let url = null; // of the picture that is shown
let said = null; // what was answered about it
let kept = null; // the number of the word that was pressed

// questions

async function take(files) {
  const [file] = files;
  if (!file) return complain(new Error("That is no picture file."));
  const number = ++asking;
  const isLate = () => number !== asking;
  if (url) URL.revokeObjectURL(url);
  url = URL.createObjectURL(file);
  present({ file, url }, "Choose another");
  forget();
  try {
    if (!model) await meet();
    const sent = sending(file);
    say("Writing…", true);
    const busy = () => isLate() || say("The server is busy: trying again…", true);
    const { captions: [answer] } = await ask(`caption?attention=${model.attention}`, sent, busy);
    if (isLate()) return;
    said = answer;
    if (said.attention) said.bytes = numbers(said.attention.maps);
    show();
    say(said.words.length ? "" : "It writes nothing about this picture.");
  } catch (error) {
    if (!isLate()) complain(error);
  }
}

// the sentence

function forget() {
  [said, kept] = [null, null];
  at("sentence").replaceChildren();
  at("looks").hidden = true;
  point(null);
}

function show() {
  at("sentence").replaceChildren(...said.words.flatMap(({ word, score }, number) => [button(word, score, number), " "]));
  at("looks").hidden = !said.attention;
}

function button(word, score, number) {
  const made = part("button", word);
  Object.assign(made, { type: "button", className: "word" });
  made.style.setProperty("--sure", score);
  made.setAttribute("aria-pressed", false);
  for (const come of ["pointerenter", "focus"]) made.addEventListener(come, () => point(number));
  for (const go of ["pointerleave", "blur"]) made.addEventListener(go, () => point(kept));
  made.addEventListener("click", () => keep(kept === number ? null : number));
  return made;
}

function keep(number) {
  kept = number;
  for (const [n, word] of [...at("sentence").children].entries()) word.setAttribute("aria-pressed", n === kept);
  point(kept);
}

// Tells of a word, or of none, and lights up where the model looked for it.
function point(number) {
  const found = number === null ? null : said?.words[number];
  at("word").textContent = found ? `“${found.word}”, ${percent.format(found.score)} likely behind the words before it` : "";
  at("overlay").hidden = !found || !said.attention;
  if (at("overlay").hidden) return;
  const { rows, columns, seen } = said.attention;
  const size = rows * columns;
  place(at("overlay"), seen);
  const map = said.bytes.subarray(number * size, (number + 1) * size);
  paint(at("overlay"), { rows, columns }, clearness(Float64Array.from(map)), 24, fog);
}

onPictures(take);
begin(({ vocabulary, engine }) => `writes sentences, ${vocabulary.toLocaleString("en")} tokens, ${engine}`);
