// Which agent answers: Weft's own, or one that the server was started with (`weft serve --agent`).
//
// The choice belongs to a thread and is kept in the browser. With one agent there is nothing to
// choose, and nothing is shown.

import { byId, el } from "./dom.js";
import { register } from "./commands.js";

const CHOICE = "weft.agent:"; // + the thread's name: the agent chosen for it
const OWN = "weft";
const TITLES = { weft: "Weft's agent", claude: "Claude Code" };

export class AgentChoice {
	constructor() {
		this.agents = [OWN];
		this.thread = null;
	}

	/** Offer these agents. */
	show(agents) {
		this.agents = agents ?? [OWN];
		if (this.agents.length < 2 || this.select) return;
		const options = this.agents.map((name) => el("option", { value: name }, TITLES[name] ?? name));
		this.select = el("select", { id: "agent", title: "Agent", "aria-label": "Agent" }, ...options);
		this.select.addEventListener("change", () => this.choose());
		byId("model").before(this.select);
		register({ name: "agent.choose", title: "Choose an agent …", run: () => this.select.focus() });
		this.at(this.thread);
	}

	/** Messages go to this thread from now on. */
	at(thread) {
		this.thread = thread;
		if (!this.select) return;
		const chosen = localStorage.getItem(CHOICE + thread);
		this.select.value = this.agents.includes(chosen) ? chosen : OWN;
	}

	choose() {
		localStorage.setItem(CHOICE + this.thread, this.select.value);
	}

	/** A renamed thread keeps its agent. */
	move(old, name) {
		const chosen = localStorage.getItem(CHOICE + old);
		if (chosen) localStorage.setItem(CHOICE + name, chosen);
		localStorage.removeItem(CHOICE + old);
	}

	/** The members of a frame that name the agent. */
	fields() {
		const agent = this.select?.value ?? OWN;
		return agent === OWN ? {} : { agent };
	}
}
