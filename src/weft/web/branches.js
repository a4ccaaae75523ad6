// What can be done with branches and commits: start, compare, merge, tag and delete them, and apply
// a commit to a branch.

import { post } from "./api.js";
import { register, registerSource } from "./commands.js";
import { askText } from "./dialog.js";
import { openDiff } from "./diff.js";
import { byId } from "./dom.js";
import { openCherryPick, openMerge } from "./merge.js";
import { branches, place, state } from "./state.js";
import { say } from "./toast.js";

export class Branches {
	/** `graph()` is the commit graph, `note(id)` asks for a note on a commit. */
	constructor({ reader, graph, note }) {
		Object.assign(this, { reader, graph, note });
		byId("new-branch").addEventListener("click", () => this.openDialog());
		this.registerCommands();
	}

	/** What can be done with a commit of the graph. */
	commandsFor(commit) {
		const names = commit.refs.filter((name) => !name.startsWith("tag:") && name !== state.branch);
		const tags = commit.refs.filter((name) => name.startsWith("tag:")).map((name) => name.slice(4));
		const merges = names.map((name) => ({ label: `Merge ${name}`, run: () => this.merge(name) }));
		const change = (path, name) => this.reader.change(path, { name });
		return [
			{ label: "Branch from here", run: (start) => this.openDialog(start) },
			{ label: "Compare", run: ({ id }) => this.compare(id), title: `Compare it with ${state.branch}` },
			{ label: "Cherry-pick", run: ({ id }) => this.pick(id, state.branch), title: `Apply this commit to ${state.branch}` },
			...merges,
			{ label: "Tag …", run: ({ id }) => this.openTagDialog(id) },
			{ label: "Note …", run: ({ id }) => this.note(id) },
			...names.map((name) => ({ label: `Delete branch ${name}`, run: () => change("/api/delete-branch", name) })),
			...tags.map((name) => ({ label: `Delete tag ${name}`, run: () => change("/api/untag", name) })),
		];
	}

	/** Compare a commit, branch or tag with the open branch. */
	compare(a = null) {
		const chips = Object.values(this.graph().refs ?? {}).flat();
		const names = [...new Set([...branches(), ...chips.filter((name) => name.startsWith("tag:"))])];
		const places = names.map((name) => ({
			value: name.replace(/^tag:/, ""),
			label: name.replace(/^tag:/, "tag "),
		}));
		for (const id of [a, state.at])
			if (id && !names.includes(id)) places.push({ value: id, label: `commit ${id.slice(0, 7)}` });
		const other = branches().find((name) => name !== state.branch) ?? state.branch;
		openDiff({ thread: state.thread, places, a: a ?? other, b: state.branch });
	}

	openTagDialog(id) {
		const run = async (name) => (await this.reader.change("/api/tag", { name, at: id })) !== null;
		askText({ id: "tag-dialog", title: `Tag the commit ${id.slice(0, 7)}`, label: "Name", run });
	}

	/** Merge a branch into the open one, after a preview. */
	merge(name) {
		const done = async ({ message }) => {
			await this.reader.go(state.thread, state.named);
			say(message);
		};
		openMerge({ ...place(), branch: state.branch, name, done });
	}

	/** Apply a commit to a branch, after a preview; then that branch is shown. */
	pick(id, branch) {
		const done = async ({ message }) => {
			await this.reader.go(state.thread, branch === state.branch ? state.named : branch);
			say(message);
		};
		openCherryPick({ thread: state.thread, branch, id, done });
	}

	/** Ask for the name of a branch that starts at a commit or a message, or at the newest commit. */
	openDialog(start = null) {
		const what = start?.parts ? "this message is its last one" : `it starts at the commit ${start?.id.slice(0, 7)}`;
		askText({
			id: "branch-dialog",
			title: "A new branch from here",
			note: start && `It has everything up to here: ${what}.`,
			label: "Name",
			value: freeName(),
			save: "Branch",
			run: (name) => this.start(name, start?.id),
		});
	}

	async start(name, at) {
		const { thread, branch } = state;
		const { message } = await post("/api/branch", { thread, branch, name, at });
		await this.reader.go(thread, name);
		say(message);
	}

	registerCommands() {
		const hasOthers = () => branches().length > 1;
		register({ name: "diff.open", title: "Compare branches …", shortcut: "d", when: hasOthers, run: () => this.compare() });
		registerSource({
			group: "Merge into this branch",
			entries: () =>
				branches()
					.filter((name) => name !== state.branch)
					.map((name) => ({ title: `Merge ${name}`, hint: state.thread, run: () => this.merge(name) })),
		});
	}
}

/** A name for a branch that no other branch has: `main-2`. */
function freeName() {
	const names = state.view?.branches ?? [];
	const stem = state.branch.replace(/-\d+$/, "");
	let number = 2;
	while (names.includes(`${stem}-${number}`)) number += 1;
	return `${stem}-${number}`;
}
