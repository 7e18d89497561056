import { setTimeout as sleep } from 'node:timers/promises';
import type { LabEvent } from './lab-event.js';
import { NotAsDescribedError } from './recorder.js';
import type { LabInstance, Stage } from './stage.js';

/** Causes faults on a stage, and ends after their consequences. */
export type Situation = (stage: Stage) => Promise<void>;

// No situation depends on luck. An action that must follow an event waits for that event. A job that must take longer than
// a period takes a multiple of that period. So a run on a busy machine has the same outcome.

/** All timers fire, and there is no fault. */
export const nothingHappens: Situation = async (stage) => {
  await stage.submit(20);
  stage.go(...stage.instances);
  await stage.settle();
};

/** The instance that holds the lock is killed while it works. */
export const holderIsKilled: Situation = async (stage) => {
  const [first, ...others] = firstAndOthers(stage);
  await stage.submit(20);
  stage.go(first);
  await stage.see(first, 'read');
  await stage.kill(first);
  stage.fault('the holder is killed (SIGKILL) in the middle of its job');
  stage.go(...others);
  await stage.settle();
};

/** The instance is killed after Redis has granted its lock, and before the reply arrives. */
export const killedBetweenTwoCommands: Situation = async (stage) => {
  const [first, ...others] = firstAndOthers(stage);
  const [node] = stage.redisNodes;
  if (!node) return;
  // The first dispatch finds no tasks. It only loads the script of the lock: the first use needs one more round trip.
  stage.go(first);
  await stage.seeAny('the first read of the tasks', ({ kind, who }) => kind === 'read' && who === first.name);
  await stage.until('the first release', async () => (await stage.lockLeft(node)) === 0);
  first.toNodes[0]?.holdReplies();
  await stage.submit(20);
  await stage.until('the lock on the node', async () => (await stage.lockLeft(node)) > 0);
  await stage.kill(first);
  stage.fault('killed (SIGKILL) after its first command, before its second');
  stage.go(...others);
  await stage.settle();
};

/** The job takes longer than the ttl. More tasks come when the first tasks are pushed. */
export const jobOutlastsTtl: Situation = async (stage) => {
  const [first, ...others] = firstAndOthers(stage);
  await stage.submit(10);
  stage.go(first);
  await stage.see(first, 'read');
  stage.go(...others);
  await stage.seeAny('the first push', ({ kind }) => kind === 'pushed');
  await stage.submit(10);
  await stage.settle();
};

/** Redis answers one instance so late that the lock of the instance has ended. */
export const replyComesLate: Situation = async (stage) => {
  const [first, ...others] = firstAndOthers(stage);
  const [node] = stage.redisNodes;
  if (!node) return;
  const delay = 2.5 * stage.plan.ttl;
  first.toNodes[0]?.delayReplies(delay);
  stage.note(`replies to ${first.name} take ${delay} ms`);
  await stage.submit(5);
  stage.go(first);
  await stage.until('the lock on the node', async () => (await stage.lockLeft(node)) > 0);
  stage.go(...others);
  // New tasks keep coming, so that the holder of the lock always works.
  const end = Date.now() + 3 * delay;
  while (Date.now() < end) {
    await sleep(stage.plan.work / 3);
    await stage.submit(3);
  }
  first.toNodes[0]?.heal();
  await stage.settle();
};

/** The master dies before its replica has the lock, and the replica becomes the master. */
export const failOver: Situation = async (stage) => {
  const [first, ...others] = firstAndOthers(stage);
  const [, replica] = stage.nodes;
  if (!replica) return;
  await stage.replicate();
  await stage.submit(10);
  stage.holdReplication();
  stage.go(first);
  await stage.see(first, 'read');
  await stage.failOver();
  stage.go(...others);
  await stage.settle();
};

/** The holder is paused after its last check, until another instance has done the work. */
export const holderIsPaused: Situation = async (stage) => {
  const [first, ...others] = firstAndOthers(stage);
  await stage.submit(10);
  stage.go(first);
  await stage.see(first, 'read');
  // From now on the link holds messages to the database, so that the write is on its way during the pause.
  first.toDatabase.holdRequests();
  await stage.see(first, 'writing');
  stage.pause(first);
  stage.fault('paused (SIGSTOP) after its last check; its write is under way');
  stage.go(...others);
  const since = stage.recorder.length;
  await stage.seeAny('the successor', ({ kind, who }) => kind === 'pushed' && who !== first.name, since);
  await stage.until("the end of the successor's tasks", async () => (await stage.unfinished()) === 0);
  first.toDatabase.heal();
  stage.resume(first);
  // The holder may notice the loss of its lock before its write. The run is judged by the outcome of the write.
  const ends = new Set(['pushed', 'refused', 'failed']);
  await stage.seeAny('its end', ({ kind, who }) => who === first.name && ends.has(kind), since);
  await stage.settle();
};

/** One of the three nodes that granted the lock forgets it. */
export const nodeForgets: Situation = async (stage) => {
  const [first, ...others] = firstAndOthers(stage);
  const [, , third] = stage.nodes;
  if (!third) return;
  for (const link of first.toNodes.slice(3)) link.disconnect();
  stage.note(`${first.name} reaches three of the five nodes`);
  await stage.submit(10);
  stage.go(first);
  await stage.see(first, 'read');
  await stage.killNode(third);
  await stage.startNode(third);
  stage.fault(`${third.name} was restarted and is empty`);
  stage.go(...others);
  await stage.settle();
};

/** Two of five nodes die, and later a third node. Then all of them come back without their data. Tasks keep coming. */
export const nodesGoAndReturn: Situation = async (stage) => {
  const { instances, nodes, recorder } = stage;
  const isPush = ({ kind }: LabEvent): boolean => kind === 'pushed';
  const submissions = new AbortController();
  const submitting = keepSubmitting(stage, submissions.signal);
  try {
    stage.go(...instances);
    await stage.seeAny('the first push', isPush);
    for (const node of nodes.slice(0, 2)) await stage.killNode(node);
    await stage.seeAny('a push without two of the nodes', isPush, recorder.length);

    for (const node of nodes.slice(2, 3)) await stage.killNode(node);
    let since = recorder.length;
    // The holder may still finish its work. After that, each instance gets an error: too few nodes vote.
    for (const instance of instances) await stage.see(instance, 'unavailable', since);
    since = recorder.length;
    for (const instance of instances) await stage.see(instance, 'unavailable', since);
    if (recorder.record.events.slice(since).some(isPush)) {
      throw new NotAsDescribedError('tasks were pushed without a majority of the nodes');
    }

    for (const node of nodes.slice(0, 3)) await stage.startNode(node);
    stage.fault('all nodes are back; three of them are empty');
    await stage.seeAny('a push after the nodes have returned', isPush, recorder.length);
  } finally {
    submissions.abort();
    await submitting;
  }
  await stage.settle();
};

/** Enough tasks to compare the times of several strategies. */
export const muchToDispatch: Situation = async (stage) => {
  await stage.submit(60);
  stage.go(...stage.instances);
  await stage.settle();
};

/** Each instance can reach two of three nodes. A different node is out of reach for each instance. */
export const eachMissesAnotherNode: Situation = async (stage) => {
  for (const [index, { toNodes }] of stage.instances.entries()) toNodes[index]?.disconnect();
  stage.note('each instance misses a different node, and reaches two of three');
  await stage.submit(12);
  stage.go(...stage.instances);
  await stage.settle();
};

/**
 * Readers start one after the other, and read again and again as long as there are tasks, so their locks overlap.
 * Meanwhile a writer asks for the lock.
 */
export const readersKeepComing: Situation = async (stage) => {
  const { writer: name } = stage.plan.rule ?? {};
  const writer = stage.instances.find((each) => each.name === name);
  const readers = stage.instances.filter((each) => each !== writer);
  if (!writer) throw new Error('the plan names no writer');
  await stage.submit(8 * readers.length);
  for (const reader of readers) {
    stage.go(reader);
    await stage.see(reader, 'read');
    // The pauses keep the readers from ending at the same time.
    await sleep(stage.plan.work / readers.length);
  }
  stage.go(writer);
  await stage.see(writer, 'asking');
  await stage.settle();
  stage.rest(...readers);
  await stage.see(writer, 'released');
};

/** Tasks keep coming, and the user of the page causes the faults. */
export const playground: Situation = async (stage) => {
  const names = stage.nodes.map(({ name }) => name).join(', ');
  const forgets = stage.nodes.some((node) => node.forgets);
  stage.note(
    `locks are kept in ${names}: killed and started again, ${forgets ? 'it is empty' : 'it still has them'}`,
  );
  stage.go(...stage.instances);
  await keepSubmitting(stage, stage.ended);
};

async function keepSubmitting(stage: Stage, signal: AbortSignal): Promise<void> {
  while (!signal.aborted) {
    if (stage.serving) await stage.submit(2);
    await sleep(300, undefined, { signal }).catch(() => undefined);
  }
}

function firstAndOthers({ instances }: Stage): [LabInstance, ...LabInstance[]] {
  const [first, ...others] = instances;
  if (!first) throw new Error('no instance was started');
  return [first, ...others];
}
