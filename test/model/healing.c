// This search shows two promises of a lock that heals (S26) over several nodes: the lock is not lost while the nodes fail one
// at a time, and a released lock leaves no record that nobody holds.
//
// Time advances in ticks; the holder renews once in a tick. A node fails for any time. It comes back with the data that it
// had, or without data; then it votes only after the guard. The next failure begins after `pause` ticks in which all nodes
// answered and voted. A node may also miss the acquisition. Nodes that answer get messages within the tick. But when a
// connection is cut, the healing request on it may arrive at any time until its deadline, or never; nobody hears the answer.
// A node that does not store the lease may grant another claim for at most `claim` ticks, as when its caller crashes. Here such a
// claim can only refuse a healing; `exclusion.c` searches the other effects. Claims that pass within a tick are left out, because
// the holder repeats a healing that another claim refused.
#include "model.h"

enum { MOST_NODES = 5 };
typedef struct {
  byte away;
  byte left;     // ticks until the lease ends here; 0 when the node does not store it
  byte stored;   // 1: the node has the record of the lease, which may have lapsed
  byte guard;    // ticks until the node votes
  byte claim;    // ticks until another claim ends here at the latest; 0 for none
  byte healing;  // ticks until the deadline of a healing request that a cut connection may still deliver; 0 for none
  byte released; // 1 after the node has confirmed the release, 2 after a release that followed the deadline
} Node;
enum { HELD, RELEASED };
typedef struct {
  Node nodes[MOST_NODES];
  byte phase;
  byte age;  // ticks since the last renewal that a quorum confirmed
  byte calm; // ticks since the last failure and the last other claim ended, at most `pause`
} State;

#include "search.h"

enum { NODES, TTL, GUARD, DEADLINE, CLAIM, PAUSE, LOSSES, PLANT, WAY, SETTINGS };
static Setting settings[SETTINGS] = {
  [NODES] = {"nodes", 3, "3 to 5"},
  [TTL] = {"ttl", 3, "ticks that a grant or an extension lasts"},
  [GUARD] = {"guard", 3, "ticks for which a node without data does not vote"},
  [DEADLINE] = {"deadline", 1, "ticks within which a healing request may arrive"},
  [CLAIM] = {"claim", 0, "ticks for which another claim may have a node; 0 for no such claims"},
  [PAUSE] = {"pause", 1, "ticks between two failures in which all nodes answer and vote, and none has another claim"},
  [LOSSES] = {"losses", 1, "1: a node may come back without its data"},
  [PLANT] = {"plant", 0, "the number of a planted error, see `enum`"},
  [WAY] = {"way", 0, "1: print the way to a violation"},
};
enum {
  RIGHT,
  NO_HEALING,
  HEALS_NO_LAPSED_LEASE, // a node with the lapsed record of the lease does not store it again
  HEALS_AFTER_RELEASE,
  NO_SECOND_RELEASE,
  NO_DEADLINE, // the request may arrive one tick later than the holder believes
  FAILS_BESIDE_CLAIM, // a node may fail while another claim has a node
};

static int quorum(void) { return SET(NODES) / 2 + 1; }

static void normalise(State *state) {
  for (int n = 0; n < SET(NODES); n++)
    if (state->phase == RELEASED) state->nodes[n].stored = 0;
  for (int i = 1; i < SET(NODES); i++)
    for (int j = i; j > 0 && memcmp(&state->nodes[j - 1], &state->nodes[j], sizeof(Node)) > 0; j--) {
      const Node node = state->nodes[j];
      state->nodes[j] = state->nodes[j - 1];
      state->nodes[j - 1] = node;
    }
}

static void renew(State *state) {
  int confirmed = 0;
  for (int n = 0; n < SET(NODES); n++) {
    Node *node = &state->nodes[n];
    if (node->away || !node->left) continue;
    node->left = (byte)SET(TTL);
    confirmed++;
  }
  if (confirmed < quorum()) {
    if (++state->age >= SET(TTL)) broken("S26: a lock is lost although one node failed at a time");
    return;
  }
  state->age = 0;
}

/** `true` if the node stores the lease when it is asked to heal. */
static int may_heal(const Node *node) {
  return !node->left && !node->guard && !node->claim && !(node->stored && SET(PLANT) == HEALS_NO_LAPSED_LEASE);
}

static void heal(Node *node) {
  node->left = (byte)SET(TTL);
  node->stored = 1;
}

static void expand_time(const State *from) {
  State next = *from;
  int all = 1;
  for (int n = 0; n < SET(NODES); n++) {
    Node *node = &next.nodes[n];
    less(&node->left);
    less(&node->guard);
    less(&node->healing);
    less(&node->claim);
    all &= !node->away && !node->guard && (!node->claim || SET(PLANT) == FAILS_BESIDE_CLAIM);
  }
  if (!all) next.calm = 0;
  else if (next.calm < SET(PAUSE)) next.calm++;
  if (next.phase == HELD) renew(&next);
  // The nodes that answer store the lease in the same tick.
  const int heals = SET(PLANT) != NO_HEALING && next.phase == HELD && !next.age;
  for (int n = 0; n < SET(NODES) && heals; n++)
    if (!next.nodes[n].away && may_heal(&next.nodes[n])) heal(&next.nodes[n]);
  step(next, "a tick");
}

static void expand_failure(const State *from, int n) {
  State next = *from;
  Node *node = &next.nodes[n];
  if (node->away) {
    node->away = 0;
    step(next, "node %d comes back", n);
    if (!SET(LOSSES)) return;
    node->left = node->stored = node->claim = 0;
    node->guard = (byte)SET(GUARD);
    step(next, "node %d comes back without its data", n);
    return;
  }
  if (from->calm < SET(PAUSE)) return;
  node->away = 1;
  next.calm = 0;
  step(next, "node %d fails", n);
  if (from->phase != HELD) return;
  // The connection is cut while a healing request is on its way.
  node->healing = (byte)SET(DEADLINE);
  step(next, "node %d fails, and a healing request to it is on its way", n);
}

static void expand_messages(const State *from, int n) {
  const Node *node = &from->nodes[n];
  State next = *from;
  // The bytes of a cut connection are in the buffer of the node's machine, or of a proxy.
  if (node->healing && may_heal(node)) {
    heal(&next.nodes[n]);
    next.nodes[n].healing = 0;
    step(next, "a healing request arrives late on node %d", n);
  }
  if (from->phase != RELEASED || node->away) return;
  if (SET(PLANT) == HEALS_AFTER_RELEASE && node->released && may_heal(node)) {
    next = *from;
    heal(&next.nodes[n]);
    step(next, "node %d is healed after the release", n);
  }
  // After the deadline, the holder releases once more what it has released before.
  if (node->released == 2 || (node->released == 1 && SET(PLANT) == NO_SECOND_RELEASE)) return;
  next = *from;
  next.nodes[n].left = 0;
  next.nodes[n].released = node->healing && SET(PLANT) != NO_DEADLINE ? 1 : 2;
  step(next, "the lock is released on node %d", n);
}

static void expand_claim(const State *from, int n) {
  const Node *node = &from->nodes[n];
  if (node->away) return;
  State next = *from;
  if (node->claim) {
    next.nodes[n].claim = 0;
    step(next, "the other claim on node %d is released", n);
  } else if (SET(CLAIM) && !node->left && !node->guard) {
    next.nodes[n].claim = (byte)SET(CLAIM);
    next.nodes[n].stored = 0;
    step(next, "node %d grants another claim", n);
  }
}

static void expand(const State *from) {
  State next = *from;
  if (from->phase == HELD) {
    next.phase = RELEASED;
    next.age = 0;
    step(next, "the lock is released");
  }
  for (int n = 0; n < SET(NODES); n++) {
    const Node *node = &from->nodes[n];
    const int over = node->released == 2 || (node->released == 1 && SET(PLANT) == NO_SECOND_RELEASE);
    if (from->phase == RELEASED && over && node->left) broken("S27: a node stores a lock that nobody holds");
    expand_failure(from, n);
    expand_messages(from, n);
    expand_claim(from, n);
  }
  expand_time(from);
}

static void print_state(const State *state) {
  printf("   ");
  for (int n = 0; n < SET(NODES); n++) {
    const Node *node = &state->nodes[n];
    printf(" node %d:%s", n, node->away ? " away" : "");
    if (node->left) printf(" for %d", node->left);
    if (node->guard) printf(" guard %d", node->guard);
    if (node->claim) printf(" another claim for %d", node->claim);
    printf(";");
  }
  printf(" %s, age %d\n", state->phase == HELD ? "held" : "released", state->age);
}

int main(int argc, char **argv) {
  read_settings(settings, SETTINGS, argc, argv);
  State start;
  memset(&start, 0, sizeof start);
  // One node has missed the acquisition.
  for (int n = 1; n < SET(NODES); n++) heal(&start.nodes[n]);
  return search(start, SET(WAY));
}
