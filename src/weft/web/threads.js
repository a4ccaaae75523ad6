// The list of threads, the search over all of them, and the deleted threads.

import { ago, byId, el, plural, refill } from "./dom.js";
import { get } from "./api.js";

const SEARCH_DELAY = 200; // milliseconds after the last key before a search starts
const PAGE = 500; // threads that are listed at first, and that "Show more" adds

export class Threads {
  constructor({ onpick, onhit, onrestore }) {
    this.onpick = onpick;
    this.onhit = onhit;
    this.onrestore = onrestore;
    this.list = byId("threads");
    this.limit = PAGE;
    this.runs = [];
    this.missing = new Set(); // running threads that the list does not show
    this.field = byId("search");
    this.field.addEventListener("input", () => {
      clearTimeout(this.timer);
      this.timer = setTimeout(() => this.load(), SEARCH_DELAY);
    });
  }

  /** Read the list again; `current` is marked as the open one. */
  async load(current = this.current) {
    this.current = current;
    const query = this.field.value.trim();
    try {
      const [{ threads, total, recording }, deleted] = await Promise.all([
        get("/api/threads", query ? { q: query, limit: this.limit } : { limit: this.limit }),
        get("/api/deleted"),
      ]);
      this.show(threads, query, total);
      this.showDeleted(deleted.threads);
      showRecording(recording);
      return threads;
    } catch (error) {
      refill(this.list, el("li", { class: "error" }, error.message));
      return [];
    }
  }

  show(threads, query, total) {
    const rest = total - this.limit;
    const more = el(
      "button",
      { type: "button", class: "quiet more", onclick: () => this.showMore() },
      `Show more (${rest})`,
    );
    refill(
      this.list,
      ...threads.map((thread) => this.entry(thread)),
      ...(rest > 0 ? [el("li", {}, more)] : []),
    );
    if (!threads.length && rest <= 0) {
      refill(
        this.list,
        el(
          "li",
          { class: "empty small" },
          query ? `Nothing matches “${query}”.` : "No threads yet.",
        ),
      );
    }
    this.showRuns();
  }

  showMore() {
    this.limit += PAGE;
    return this.load();
  }

  entry(thread) {
    const branches = thread.branches > 1 ? plural(thread.branches, "branch", "branches") : "";
    const name = thread.title ? thread.name : "";
    const facts = [ago(thread.updated), branches, name].filter(Boolean).join(" · ");
    const pick = el(
      "button",
      {
        type: "button",
        class: "thread",
        "aria-current": thread.name === this.current ? "page" : null,
        "data-thread": thread.name,
        title: thread.name,
        onclick: () => this.onpick(thread.name),
      },
      el("span", { class: "thread-name" }, thread.title ?? thread.name),
      el("span", { class: "thread-facts muted" }, facts),
      el("span", { class: "running-mark" }, "answering …"),
    );
    const hits = (thread.hits ?? []).map((hit) =>
      el(
        "button",
        { type: "button", class: "hit", onclick: () => this.onhit(thread.name, hit.id) },
        hit.text,
      ),
    );
    return el("li", {}, pick, ...hits);
  }

  /** Threads that were deleted and can be restored. */
  showDeleted(threads) {
    const box = byId("deleted");
    box.hidden = !threads.length;
    box.querySelector("summary").textContent = `Deleted threads (${threads.length})`;
    const restore = (name) =>
      el("button", { type: "button", class: "quiet", onclick: () => this.onrestore(name) }, "Restore");
    const rows = threads.map(({ name, deleted }) =>
      el(
        "li",
        { title: `${name}, deleted ${ago(deleted)}` },
        el("span", { class: "thread-name" }, name),
        restore(name),
      ),
    );
    refill(byId("deleted-list"), ...rows);
  }

  /** Mark the threads with a run; reload the list if it lacks one of them. */
  mark(runs) {
    this.runs = runs;
    const missing = new Set(runs.map(({ thread }) => thread));
    for (const entry of this.list.querySelectorAll(".thread")) missing.delete(entry.dataset.thread);
    const isNew = [...missing].some((name) => !this.missing.has(name));
    this.missing = missing;
    if (isNew) this.load();
    else this.showRuns();
  }

  showRuns() {
    const running = new Map(this.runs.map(({ thread, waiting }) => [thread, waiting]));
    for (const entry of this.list.querySelectorAll(".thread")) {
      const name = entry.dataset.thread;
      entry.toggleAttribute("data-running", running.has(name));
      const status = running.get(name) ? "waits for you" : "answering …";
      entry.querySelector(".running-mark").textContent = status;
    }
  }
}

/** Show a warning while exchanges are not recorded in the store. */
function showRecording({ state, pending = 0, lost = 0 }) {
  const problems = [];
  if (state === "journal") {
    problems.push(
      `The store accepts no records; ${plural(pending, "record waits", "records wait")} in the journal.`,
    );
  }
  if (lost) problems.push(`${plural(lost, "record was", "records were")} lost: see the server's log.`);
  const line = byId("recording");
  line.textContent = problems.join(" ");
  line.hidden = !problems.length;
}
