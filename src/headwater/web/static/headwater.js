// What a page can do beyond links and forms. Nothing that came from the lake is ever taken for markup: text only.
"use strict";

const all = (selector, root = document) => [...root.querySelectorAll(selector)];
const say = (element, text) => { if (element) element.textContent = text; };

// "/" goes to the search box, as people expect it.
document.addEventListener("keydown", (event) => {
  if (event.key === "/" && !/^(INPUT|TEXTAREA|SELECT)$/.test(document.activeElement.tagName)) {
    event.preventDefault();
    (document.querySelector(".box input") || document.querySelector(".find input"))?.focus();
  }
});

// Boxes are told in the picture's own points.
for (const svg of all("svg[data-boxes]")) {
  const image = svg.parentElement.querySelector("img");
  const fit = () => svg.setAttribute("viewBox", `0 0 ${image.naturalWidth || 1} ${image.naturalHeight || 1}`);
  image.complete ? fit() : image.addEventListener("load", fit);
}

// A player begins where the words are; its transcript runs along.
for (const player of all("audio[data-start], video[data-start]")) {
  const start = Number(player.dataset.start);
  if (start) player.addEventListener("loadedmetadata", () => { player.currentTime = start; }, { once: true });
}
const followed = document.querySelector("[data-follow]");
if (followed) {
  const lines = all("li[data-from]");
  followed.addEventListener("timeupdate", () => {
    for (const line of lines) {
      const now = followed.currentTime >= Number(line.dataset.from) && followed.currentTime < Number(line.dataset.to);
      line.classList.toggle("now", now);
    }
  });
  document.addEventListener("click", (event) => {
    const jump = event.target.closest("[data-jump]");
    if (!jump) return;
    followed.currentTime = Number(jump.dataset.jump);
    followed.play();
  });
}

async function call(method, url, body, headers = {}) {
  const options = { method, headers };
  if (body instanceof FormData) options.body = body;
  else if (body !== undefined) {
    options.body = JSON.stringify(body);
    options.headers = { "Content-Type": "application/json", ...headers };
  }
  const answer = await fetch(url, options);
  const told = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Error(told.error ? told.error.message : `${answer.status}`);
  return told;
}

// Buttons that do something: what they did is told beside them.
document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-post], [data-delete], [data-dismiss]");
  if (!button) return;
  if (button.dataset.confirm && !window.confirm(button.dataset.confirm)) return;
  const said = button.parentElement.querySelector(".said") || button;
  let request;
  if (button.dataset.dismiss) {
    const because = window.prompt(`Why may ${button.dataset.dismiss} be let go?`);
    if (!because) return;
    request = ["POST", "/api/v1/quarantine/dismissals", { ids: [button.dataset.dismiss], because }];
  } else if (button.dataset.delete) request = ["DELETE", button.dataset.delete];
  else request = ["POST", button.dataset.post, button.dataset.body ? JSON.parse(button.dataset.body) : undefined];
  button.disabled = true;
  try {
    const told = await call(...request);
    if (told.command) say(said, `job ${told.id}: ${told.command} …`);
    else window.location.reload();
  } catch (error) {
    say(said, error.message);
  } finally {
    button.disabled = false;
  }
});

for (const form of all("form[data-label]")) {
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const given = new FormData(form);
    try {
      await call("POST", form.dataset.label, { labels: { [given.get("key")]: given.get("value") } });
      window.location.reload();
    } catch (error) {
      say(form.querySelector(".said"), error.message);
    }
  });
}

// Where something that was put stands by now, until it can be found or was refused.
async function follow(line) {
  const stands = line.querySelector(".said");
  const found = await call("GET", `/api/v1/objects/${line.dataset.path}`).catch(() => null);
  let words = "waits";
  if (found && found.quarantined.length) words = `was refused: ${found.quarantined[0].reason}, ${found.quarantined[0].detail}`;
  else if (found && found.vectors.length && found.vectors.every((vector) => vector.indexed)) words = "can be found";
  else if (found && found.vectors.length) words = "has its vectors, and waits for the index";
  else if (found && found.derived.length) words = "was read, and waits for its vectors";
  else if (found) words = "is in bronze, and waits to be read";
  say(stands, words);
  if (words === "can be found" || words.startsWith("was refused")) delete line.dataset.path;
}

for (const form of all("form[data-plan]")) {
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const options = Object.fromEntries(new FormData(form));
    try {
      const told = await call("POST", "/api/v1/plans", { kind: form.dataset.plan, options });
      say(form.querySelector(".said"), `job ${told.id} finds out …`);
    } catch (error) {
      say(form.querySelector(".said"), error.message);
    }
  });
}

const put = document.getElementById("put");
if (put) {
  const drop = document.getElementById("drop");
  const files = document.getElementById("files");
  const landed = document.getElementById("landed");
  for (const name of ["dragenter", "dragover"]) {
    drop.addEventListener(name, (event) => { event.preventDefault(); drop.classList.add("over"); });
  }
  drop.addEventListener("dragleave", () => drop.classList.remove("over"));
  drop.addEventListener("drop", (event) => {
    event.preventDefault();
    drop.classList.remove("over");
    files.files = event.dataTransfer.files;
  });
  put.addEventListener("submit", async (event) => {
    event.preventDefault();
    const said = document.getElementById("said");
    const given = new FormData(put);
    if (!files.files.length) given.delete("files");
    for (const name of ["text", "thread"]) if (!given.get(name)) given.delete(name);
    say(said, "Sending …");
    try {
      const told = await call("POST", put.action, given);
      say(said, `${told.results.length} sent.`);
      for (const result of told.results) {
        const line = document.createElement("li");
        if (result.path) {
          const link = document.createElement("a");
          link.href = `/object/${result.path.split("/").map(encodeURIComponent).join("/")}`;
          link.textContent = result.path;
          const stands = document.createElement("span");
          stands.className = "said";
          line.append(`${result.status}: `, link, " ", stands);
          line.dataset.path = link.href.slice(link.href.indexOf("/object/") + 8);
          if (result.status === "stored") say(stands, "waits for a run");
          else follow(line);
        } else line.textContent = `${result.name}: ${result.error ? result.error.message : result.reason}`;
        landed.prepend(line);
      }
      put.querySelector("textarea").value = "";
      files.value = "";
    } catch (error) {
      say(said, error.message);
    }
  });
}

// Jobs as cards; drawn anew only where one of them changed, so that an opened answer stays open.
let jobsDrawn = "";
function drawJobs(jobs) {
  const list = document.getElementById("jobs");
  if (list && list.dataset.only) jobs = jobs.filter((job) => job.command.startsWith(list.dataset.only));
  const now = JSON.stringify(jobs);
  if (!list || now === jobsDrawn) return;
  jobsDrawn = now;
  list.replaceChildren(...jobs.map((each) => {
    const card = document.createElement("li");
    card.className = "card";
    const head = document.createElement("p");
    const outcome = each.exit_code === null ? "at work" : each.exit_code === 0 ? "done" : `ended with ${each.exit_code}`;
    head.textContent = `job ${each.id}: ${each.command}, by ${each.by}: ${outcome}. ${each.said}`;
    card.append(head);
    if (each.exit_code !== null) {
      const details = document.createElement("details");
      const summary = document.createElement("summary");
      summary.textContent = "its answer";
      const answer = document.createElement("pre");
      details.append(summary, answer);
      details.addEventListener("toggle", async () => {
        if (!details.open || answer.textContent) return;
        say(answer, JSON.stringify((await call("GET", `/api/v1/jobs/${each.id}`)).result, null, 1));
      });
      card.append(details);
    }
    return card;
  }));
}

// What goes on, by one look for all pages.
let flowSeen = "";
const live = document.getElementById("live");
if (live) {
  const source = new EventSource("/live");
  source.addEventListener("state", (event) => {
    const state = JSON.parse(event.data);
    if (state.down) { say(live, "a part is down"); return; }
    let waits = 0;
    for (const stage of state.flow) {
      waits += stage.pending || 0;
      for (const shown of all(`[data-stage="${stage.name}"]`)) {
        say(shown.querySelector("[data-pending]"), stage.pending === null ? "–" : stage.pending.toLocaleString("en"));
        shown.classList.toggle("busy", Boolean(stage.pending));
      }
    }
    const job = state.jobs[0];
    const atWork = job && job.exit_code === null;
    say(live, atWork ? `${job.command} at work` : waits ? `${waits.toLocaleString("en")} waiting` : "all done");
    for (const shown of all("[data-job]")) {
      if (!job) continue;
      say(shown, atWork ? `job ${job.id}: ${job.command} at work. ${job.said}` : `job ${job.id}: ${job.command} ${job.exit_code === 0 ? "done" : `ended with ${job.exit_code}: ${job.said}`}`);
    }
    drawJobs(state.jobs);
    const flow = JSON.stringify([state.flow, state.jobs.map((each) => each.exit_code)]);
    const waiting = state.flow.some((stage) => stage.name === "bronze" && stage.pending);
    if (flow !== flowSeen && !waiting) all("#landed [data-path]").forEach(follow);
    flowSeen = flow;
  });
  // It calls again by itself, now and then because the server wants it so; only what lasts is worth a word.
  let lost;
  source.onopen = () => { window.clearTimeout(lost); if (live.textContent === "not connected") say(live, ""); };
  source.onerror = () => { window.clearTimeout(lost); lost = window.setTimeout(() => say(live, "not connected"), 4000); };
}
