// Which agent answers: Weft's own, or one that the server was started with (`weft serve --agent`).
//
// The choice belongs to a thread, and the server keeps it. With one agent there is nothing to choose,
// and nothing is shown.

import { byId, el } from "./dom.js";
import { post } from "./api.js";
import { register } from "./commands.js";
import { effect } from "./signals.js";
import { state } from "./state.js";
import { say } from "./toast.js";

const OWN = "weft";
const TITLES = { weft: "Weft's agent", claude: "Claude Code" };

export class AgentChoice {
	constructor() {
		this.chosen = new Map(); // by thread, until the server has stored the choice
		effect(() => this.show());
	}

	show() {
		const { agents, composer, thread } = state;
		if (agents.length < 2) return;
		this.select ??= this.make(agents);
		if (composer && this.chosen.get(thread) === composer.agent) this.chosen.delete(thread);
		const name = this.chosen.get(thread) ?? composer?.agent;
		this.select.value = agents.includes(name) ? name : OWN;
	}

	make(agents) {
		const options = agents.map((name) => el("option", { value: name }, TITLES[name] ?? name));
		const select = el("select", { id: "agent", title: "Agent", "aria-label": "Agent" }, ...options);
		select.addEventListener("change", () => this.choose(select.value));
		byId("model").before(select);
		register({ name: "agent.choose", title: "Choose an agent …", run: () => select.focus() });
		return select;
	}

	/** A thread without a message does not exist yet: its first message brings the choice along. */
	async choose(agent) {
		const { thread, view } = state;
		this.chosen.set(thread, agent);
		if (view?.new) return;
		try {
			await post("/api/agent", { thread, agent });
			if (thread === state.thread) state.composer = { ...state.composer, agent };
			this.chosen.delete(thread);
		} catch (error) {
			this.chosen.delete(thread);
			this.show();
			say(error.message, true);
		}
	}

	/** The members of a frame that name the agent. */
	fields() {
		return this.select ? { agent: this.select.value } : {};
	}
}
