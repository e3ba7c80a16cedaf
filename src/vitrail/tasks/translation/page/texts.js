// Sends texts to the server that this page came from, and shows the translation and where the model looked.

import { ask, at, begin, complain, meet, model, part, say } from "./page.js";

const percent = new Intl.NumberFormat("en", { style: "percent", maximumFractionDigits: 0 });
const NAMED = 4; // tokens that are named in the sentence
const WORTH = 0.02; // shares below this are not named
const END = "</s>";

let asking = 0; // the number of the last question, whose answer alone is shown

// the languages, as English names them where their names are codes

const names = new Intl.DisplayNames("en", { type: "language" });
const isCode = (language) => /^[a-z]{2}(-[a-z]{2})?$/i.test(language); // a file's ending may be no code: src, de-lowercased

function languageName(language) {
  try {
    return isCode(language) ? names.of(language) : language;
  } catch {
    return language;
  }
}

function introduce({ languages: { source, target }, engine }) {
  for (const [id, language] of Object.entries({ source, target })) at(id).textContent = languageName(language);
  if (isCode(source)) at("text").lang = source;
  if (isCode(target)) at("translation").lang = target;
  return `${languageName(source)} to ${languageName(target)}, ${engine}`;
}

// texts

async function translate() {
  const number = ++asking;
  const lines = at("text").value.split("\n");
  if (!lines.some((line) => line.trim())) return complain(new Error("There is no text yet."));
  at("translation").classList.add("old");
  try {
    say("Translating…", true);
    if (!model) await meet();
    const late = () => number !== asking; // another has been asked since
    const busy = () => late() || say("The server is busy: trying again…", true);
    for (let first = 0; first < lines.length; first += model.limits.texts) {
      for await (const some of translated(lines.slice(first, first + model.limits.texts), model.attention, busy)) {
        if (late()) return;
        if (at("translation").classList.contains("old")) clear();
        add(some);
      }
    }
    say("");
  } catch (error) {
    if (number !== asking) return;
    if (at("translation").classList.contains("old")) clear();
    complain(error);
  }
}

// The translations of some lines, in halves where all are more than the server takes on or than it can do by its deadline. A single
// line that is too much with its attention goes without.
async function* translated(text, attention, busy) {
  const sent = { method: "POST", body: JSON.stringify({ text, attention }), headers: { "Content-Type": "application/json" } };
  const [alone, half] = [text.length === 1, Math.ceil(text.length / 2)];
  try {
    yield (await ask("translate", sent, busy)).translations;
  } catch (error) {
    if (![413, 504].includes(error.status) || (alone && !attention)) throw error;
    yield* translated(text.slice(0, half), attention && !alone, busy);
    if (!alone) yield* translated(text.slice(half), attention, busy);
  }
}

function clear() {
  at("translation").classList.remove("old");
  for (const id of ["translation", "pieces"]) at(id).replaceChildren();
  at("attention").hidden = true;
}

function add(translations) {
  at("translation").append(...translations.map(({ translation }) => part("p", translation)));
  at("pieces").append(...translations.flatMap(({ attention }) => attention ?? []).map(aligned));
  at("attention").hidden = !at("pieces").children.length;
}

// where the model looked

// One piece: its tokens in both languages; each lights the tokens of the other language that it belongs to.
function aligned({ source_tokens, tokens, attention }) {
  const { source, target } = model.languages;
  const shares = part("p");
  shares.className = "shares";
  const read = row(source, source_tokens);
  const written = row(target, tokens);
  const sides = [
    { ...written, other: read, of: (place) => attention[place], said: ["Writing ", ", it looked at"] },
    { ...read, other: written, of: (place) => attention.map((looks) => looks[place]), said: ["At ", " it looked as it wrote"] },
  ];
  let chosen = [sides[0], 0];
  const light = (side, place) => {
    const weights = side.of(place);
    for (const { buttons } of [read, written]) buttons.forEach((button) => button.style.removeProperty("--share"));
    for (const [n, button] of side.other.buttons.entries()) button.style.setProperty("--share", Math.sqrt(weights[n]));
    for (const { buttons } of [read, written]) {
      buttons.forEach((button, n) => button.setAttribute("aria-pressed", buttons === side.buttons && n === place));
    }
    shares.replaceChildren(...inWords(side, place, weights));
  };
  for (const side of sides) {
    listen(side, (place) => light(side, place), (place) => light(...(chosen = [side, place])), () => light(...chosen));
  }
  light(...chosen);
  return part("li", read.whole, written.whole, shares, table(source_tokens, tokens, attention));
}

function row(language, tokens) {
  const buttons = tokens.map((token, place) => {
    const button = part("button", shown(token));
    Object.assign(button, { type: "button", tabIndex: place ? -1 : 0 });
    button.classList.toggle("mark", token === END);
    return button;
  });
  const words = part("div");
  for (const [place, button] of buttons.entries()) {
    if (!place || tokens[place] === END || tokens[place].startsWith(" ")) words.append(part("span"));
    words.lastElementChild.className = "word";
    words.lastElementChild.append(button);
  }
  words.setAttribute("role", "group");
  words.setAttribute("aria-label", `Pieces of words, ${languageName(language)}`);
  if (isCode(language)) words.lang = language;
  const whole = part("div", part("span", languageName(language)), words);
  whole.className = "tokens";
  return { whole, words, buttons };
}

const shown = (token) => (token === END ? "end" : token.trim() || "␣");

function listen({ words, buttons }, point, choose, leave) {
  const place = ({ target }) => buttons.indexOf(target.closest("button"));
  words.addEventListener("pointerover", (event) => event.pointerType === "mouse" && place(event) >= 0 && point(place(event)));
  words.addEventListener("pointerleave", leave);
  words.addEventListener("click", (event) => place(event) >= 0 && choose(place(event)));
  words.addEventListener("focusin", (event) => {
    for (const button of buttons) button.tabIndex = button === event.target ? 0 : -1;
    choose(place(event));
  });
  words.addEventListener("keydown", (event) => {
    const here = place(event);
    const next = { ArrowLeft: here - 1, ArrowRight: here + 1, Home: 0, End: buttons.length - 1 }[event.key];
    if (next === undefined) return;
    event.preventDefault();
    buttons[next]?.focus();
  });
}

// The largest shares, for whoever does not see the colours.
function inWords({ buttons, other, said }, place, weights) {
  const order = [...weights.keys()].sort((one, two) => weights[two] - weights[one]);
  const named = order.slice(0, NAMED).filter((n) => weights[n] >= WORTH);
  const list = named.flatMap((n, i) => [i ? ", " : " ", part("b", other.buttons[n].textContent), ` ${percent.format(weights[n])}`]);
  return [said[0], part("b", buttons[place].textContent), `${said[1]}${named.length ? "" : " nothing much"}`, ...list];
}

function table(read, written, attention) {
  const head = part("tr", part("td"), ...read.map((token) => part("th", part("span", shown(token)))));
  const rows = written.map((token, i) => part("tr", part("th", shown(token)), ...attention[i].map(cell)));
  const map = part("div", part("table", part("thead", head), part("tbody", ...rows)));
  Object.assign(map, { className: "map", tabIndex: 0 }); // it scrolls
  return part("details", part("summary", "All of it, as a map"), map);
}

function cell(share) {
  const made = part("td");
  made.style.setProperty("--share", share);
  made.title = percent.format(share);
  return made;
}

// the ways to ask

at("asks").addEventListener("submit", (event) => {
  event.preventDefault();
  translate();
});
at("text").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) at("asks").requestSubmit();
});

begin(introduce);
