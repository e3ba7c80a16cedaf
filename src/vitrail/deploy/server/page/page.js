// What every page does: asks the server that it came from, tells what goes wrong, and asks for a token where one is needed.

export const at = (id) => document.getElementById(id);
const TRIES = 4;

export let model = null; // what /model says
let introduced = () => "";
const nothingYet = at("status").textContent;

export async function ask(path, options = {}, wait = () => {}) {
  const token = sessionStorage.getItem("token");
  const headers = { ...options.headers, ...(token && { Authorization: `Bearer ${token}` }) };
  for (let left = TRIES; ; left--) {
    const answer = await fetch(path, { ...options, headers });
    if (answer.ok) return answer.json();
    const problem = await answer.json().catch(() => ({ detail: answer.statusText }));
    if (answer.status === 401) askForToken();
    if (answer.status !== 429 || left <= 1) throw new Error(told(problem));
    wait();
    await new Promise((go) => setTimeout(go, 1000 * Number(answer.headers.get("Retry-After") ?? 1)));
  }
}

function told(problem) {
  const text = problem.hint ? `${problem.detail}: ${problem.hint}` : String(problem.detail);
  return `${text[0].toUpperCase()}${text.slice(1)}.`;
}

export function say(text, busy = false) {
  at("status").textContent = text;
  at("status").classList.toggle("busy", busy);
  at("problem").hidden = true;
}

export function complain(error) {
  say("");
  at("problem").textContent = error instanceof TypeError ? "The server does not answer." : error.message;
  at("problem").hidden = false;
}

function askForToken() {
  sessionStorage.removeItem("token");
  at("entry").hidden = false;
  at("token").focus();
}

export async function meet() {
  model = await ask("model");
  at("entry").hidden = true;
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
  at("entry").addEventListener("submit", (event) => {
    event.preventDefault();
    sessionStorage.setItem("token", at("token").value.trim());
    meet().then(() => say(nothingYet), complain);
  });
  meet().catch(complain);
}
