// What every page does: asks the server that it came from, tells what goes wrong, and asks for a token where one is needed.

export const at = (id) => document.getElementById(id);
const TRIES = 4;

export let model = null; // what /model says
let introduced = () => "";
let guarded = false; // whether the server asks for a token

export async function ask(path, options = {}, wait = () => {}) {
  for (let left = TRIES; ; ) {
    const token = sessionStorage.getItem("token");
    const headers = new Headers({ ...options.headers, ...(token && { Authorization: `Bearer ${token}` }) });
    const { answer, text } = await fetched(path, { ...options, headers });
    at("entry").hidden = answer.status !== 401;
    guarded ||= answer.status === 401 || token !== null;
    showExample();
    if (answer.ok) return JSON.parse(text);
    const error = refusal(answer.status, text);
    if (answer.status === 401) {
      await anotherToken(token);
      continue;
    }
    if (answer.status !== 429 || !--left) throw error;
    wait();
    await new Promise((go) => setTimeout(go, 1000 * (Number(answer.headers.get("Retry-After")) || 1)));
  }
}

async function fetched(path, options) {
  try {
    const answer = await fetch(path, options);
    return { answer, text: await answer.text() };
  } catch {
    throw new Error("The server does not answer.");
  }
}

// An error with the status and what is said of it; a proxy in front of the server may say it with a page of its own.
function refusal(status, text) {
  const { detail = `the answer has status ${status}`, hint } = parsed(text);
  const message = hint ? `${detail}: ${hint}` : String(detail);
  return Object.assign(new Error(`${message[0].toUpperCase()}${message.slice(1)}.`), { status });
}

function parsed(text) {
  try {
    return JSON.parse(text) ?? {};
  } catch {
    return {};
  }
}

function showExample() {
  const token = guarded ? "-H 'Authorization: Bearer TOKEN' " : "";
  at("example").textContent = `curl ${token}${at("example").dataset.sent.replace("ADDRESS/", new URL(".", location))}`;
}

// Waits until a token is entered, perhaps in place of one that was refused; what was said before is said again then.
async function anotherToken(refused) {
  if (sessionStorage.getItem("token") !== refused) return; // another question has asked for it
  sessionStorage.removeItem("token");
  const said = [at("status").textContent, at("status").classList.contains("busy")];
  if (refused !== null) complain(new Error("This token is wrong."));
  else if (at("problem").hidden) say("It waits for the token.");
  at("token").focus();
  await new Promise((go) => at("entry").addEventListener("submit", go, { once: true }));
  say(...said);
}

export function say(text, busy = false) {
  at("status").textContent = text;
  at("status").classList.toggle("busy", busy);
  at("problem").hidden = true;
}

export function complain(error) {
  say("");
  at("problem").textContent = error.message;
  at("problem").hidden = false;
}

export async function meet() {
  model = await ask("model");
  at("name").textContent = document.title = model.name;
  at("about").textContent = introduced(model);
}

export function part(name, ...inside) {
  const made = document.createElement(name);
  made.append(...inside);
  return made;
}

// Greets whoever comes; `introduce` says in a few words what the model is.
export function begin(introduce) {
  introduced = introduce;
  showExample();
  at("entry").addEventListener("submit", (event) => {
    event.preventDefault();
    sessionStorage.setItem("token", at("token").value.trim());
  });
  meet().catch(complain);
}
