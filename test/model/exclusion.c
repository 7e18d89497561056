// This search shows J1 over several nodes: at most one holder within its validity. The search includes extensions, late
// and lost messages, clocks that gain, and nodes that lose their data. Tokens are left out: a raise can only make an
// acquisition fail.
//
// Time advances in ticks, for nodes and claims alike. A node's clock may gain one tick in each ttl. A node executes a
// message at any time, in any order, any number of times, or never; messages have no deadline. Two claims are enough: J1
// compares two holders, and other claims can only block them. A record keeps its id until another claim is granted or the
// record is released, which is longer than any linger.
//
// A claim whose process crashes is one that ends: the nodes execute any of its messages later, or none, and no reply counts.
#include "model.h"

enum { MOST_NODES = 3, NOBODY = 0, CLAIM = 1 };
typedef struct {
  byte owner, left; // ticks until the record is no longer held
  byte guard;       // ticks until the node grants again
  byte gained;      // ticks until the clock may gain again
  byte saved_owner, saved_left;
  byte granted[2], extended[2]; // answers that the claims have received
} Node;
enum { IDLE, ASKING, HOLDS, ENDED };
typedef struct {
  byte phase, age; // ticks since the send of the first message, or of the last extension that counted
  byte extending, since; // ticks since the send of the extension
  byte late; // 1: replies to earlier extensions are still on their way, and no longer count
} Claim;
typedef struct {
  Node nodes[MOST_NODES];
  Claim claims[2];
} State;

#include "search.h"

enum { NODES, TTL, DRIFT, GAIN, GUARD, LOSSES, CRASHES, EXTENSIONS, HEALS, PLANT, WAY, SETTINGS };
static Setting settings[SETTINGS] = {
  [NODES] = {"nodes", 3, "1 to 3"},
  [TTL] = {"ttl", 3, "ticks that a grant or an extension lasts"},
  [DRIFT] = {"drift", 1, "ticks by which validity is shorter than the ttl"},
  [GAIN] = {"gain", 1, "1: a node's clock may gain a tick in each ttl"},
  [GUARD] = {"guard", 3, "ticks for which a node that failed grants nothing"},
  [LOSSES] = {"losses", 1, "1: a node may lose its data, again and again, never two within the guard"},
  [CRASHES] = {"crashes", 0, "1: a node may come back with the data that it had saved, likewise"},
  [EXTENSIONS] = {"extensions", 1, "1: holders extend"},
  [HEALS] = {"heals", 0, "1: holders store their lease on nodes that lack it (S26)"},
  [PLANT] = {"plant", 0, "the number of a planted error, see `enum`"},
  [WAY] = {"way", 0, "1: print the way to a violation"},
};
enum {
  RIGHT,
  VALIDITY_FROM_REPLY,
  EXTENSION_FROM_REPLY,
  EARLIER_REPLY_COUNTS,
  EXTEND_ANY_OWNER,
  RELEASE_ANY_OWNER,
  ID_USED_AGAIN, // a node executes the release of the earlier attempt late
  HALF_IS_ENOUGH,
  GRANT_WHAT_IS_HELD,
  EXTEND_WHAT_LAPSED,
  ONE_EXTENSION_IS_ENOUGH,
  HEAL_YOUNG_NODE,
  HEAL_WHAT_IS_HELD,
  HEAL_WHAT_CAME_BACK, // a node takes the lock in its older data for one that has ended
};

static int quorum(void) { return SET(PLANT) == HALF_IS_ENOUGH ? SET(NODES) / 2 + !(SET(NODES) / 2) : SET(NODES) / 2 + 1; }
static int validity(void) { return SET(TTL) - SET(DRIFT); }

static void exchange_claims(State *state) {
  for (int n = 0; n < SET(NODES); n++) {
    Node *node = &state->nodes[n];
    if (node->owner) node->owner = (byte)(CLAIM + CLAIM + 1 - node->owner);
    if (node->saved_owner) node->saved_owner = (byte)(CLAIM + CLAIM + 1 - node->saved_owner);
    EXCHANGE(node->granted[0], node->granted[1]);
    EXCHANGE(node->extended[0], node->extended[1]);
  }
  EXCHANGE(state->claims[0], state->claims[1]);
}

static void normalise(State *state) {
  for (int k = 0; k < 2; k++) {
    Claim *claim = &state->claims[k];
    if ((claim->phase == ASKING || claim->phase == HOLDS) && claim->age >= validity()) claim->phase = ENDED;
    if (claim->phase == ENDED) claim->age = 0;
    if (claim->phase == ENDED || claim->since >= validity()) claim->extending = 0;
    if (!claim->extending) claim->since = 0;
    for (int n = 0; n < SET(NODES); n++) {
      Node *node = &state->nodes[n];
      if (claim->phase != ASKING) node->granted[k] = 0;
      if (!claim->extending) node->extended[k] = 0;
      // A record that is not held has no effect once its claim has ended and extends no more.
      const int over = claim->phase == ENDED && !claim->late;
      if (node->owner == CLAIM + k && !node->left && over) node->owner = NOBODY;
      if (node->saved_owner == CLAIM + k && !node->saved_left && over) node->saved_owner = NOBODY;
    }
  }
  SORT(state->nodes, SET(NODES));
  State other = *state;
  exchange_claims(&other);
  SORT(other.nodes, SET(NODES));
  if (memcmp(&other, state, sizeof other) < 0) *state = other;
}

static void expand_time(const State *from) {
  State next = *from;
  for (int n = 0; n < SET(NODES); n++) {
    Node *node = &next.nodes[n];
    less(&node->left);
    less(&node->saved_left);
    less(&node->guard);
    less(&node->gained);
  }
  for (int k = 0; k < 2; k++) {
    Claim *claim = &next.claims[k];
    if (claim->phase == ASKING || claim->phase == HOLDS) claim->age++;
    if (claim->extending) claim->since++;
  }
  step(next, "a tick");
}

static void expand_faults(const State *from, int n) {
  State next = *from;
  Node *node = &next.nodes[n];
  if (SET(GAIN) && !node->gained && (node->left || node->guard || node->saved_left)) {
    less(&node->left);
    less(&node->saved_left);
    less(&node->guard);
    node->gained = (byte)SET(TTL);
    step(next, "the clock of node %d gains a tick", n);
  }
  if (SET(CRASHES) && (node->saved_owner != from->nodes[n].owner || node->saved_left != from->nodes[n].left)) {
    next = *from;
    node->saved_owner = node->owner;
    node->saved_left = node->left;
    step(next, "node %d saves its data", n);
  }
  for (int i = 0; i < SET(NODES); i++)
    if (i != n && from->nodes[i].guard) return;
  if (SET(LOSSES)) {
    next = *from;
    node->owner = node->left = node->saved_owner = node->saved_left = 0;
    node->guard = (byte)SET(GUARD);
    step(next, "node %d loses its data", n);
  }
  if (SET(CRASHES)) {
    next = *from;
    node->owner = node->saved_owner;
    node->left = node->saved_left;
    node->guard = (byte)SET(GUARD);
    step(next, "node %d crashes and comes back with what it had saved", n);
  }
}

static void hold(State *state, int k) {
  state->claims[k].phase = HOLDS;
  if (SET(PLANT) == VALIDITY_FROM_REPLY) state->claims[k].age = 0;
  if (state->claims[1 - k].phase == HOLDS) broken("J1: two holders within their validity");
}

static void expand_messages(const State *from, int k, int n) {
  const Claim *claim = &from->claims[k];
  const Node *node = &from->nodes[n];
  State next;
  const int own = node->owner == CLAIM + k;
  if (claim->phase != IDLE && !node->guard && (!node->left || (SET(PLANT) == GRANT_WHAT_IS_HELD && !own))) {
    next = *from;
    next.nodes[n].owner = (byte)(CLAIM + k);
    next.nodes[n].left = (byte)SET(TTL);
    step(next, "claim %d acquires on node %d, unheard", k, n);
    if (claim->phase == ASKING && !node->granted[k]) {
      next.nodes[n].granted[k] = 1;
      int granted = 0;
      for (int i = 0; i < SET(NODES); i++) granted += next.nodes[i].granted[k];
      step(next, "claim %d acquires on node %d", k, n);
      if (granted >= quorum()) {
        hold(&next, k);
        step(next, "claim %d acquires on node %d, and holds the lock", k, n);
      }
    }
  }
  // A healing request may come late, also after its claim has ended.
  const int heals = SET(HEALS) && (claim->phase == HOLDS || claim->phase == ENDED) && !(own && node->left);
  const int votes = !node->guard || SET(PLANT) == HEAL_YOUNG_NODE;
  const int is_free = !node->left || SET(PLANT) == HEAL_WHAT_IS_HELD;
  const int came_back = node->guard && node->left && SET(PLANT) == HEAL_WHAT_CAME_BACK;
  if (heals && ((votes && is_free) || came_back)) {
    next = *from;
    next.nodes[n].owner = (byte)(CLAIM + k);
    next.nodes[n].left = (byte)SET(TTL);
    step(next, "claim %d heals on node %d", k, n);
  }
  // A node grants a duplicate of a held lock again, also under the guard, and does not prolong the lock.
  if (own && node->left && claim->phase == ASKING && !node->granted[k]) {
    next = *from;
    next.nodes[n].granted[k] = 1;
    int granted = 0;
    for (int i = 0; i < SET(NODES); i++) granted += next.nodes[i].granted[k];
    if (granted >= quorum()) hold(&next, k);
    step(next, "claim %d acquires again on node %d%s", k, n, granted >= quorum() ? ", and holds the lock" : "");
  }
  const int releases = own && (claim->phase == ENDED || SET(PLANT) == ID_USED_AGAIN);
  // With the planted error, the release of any claim frees the record.
  if (releases || (node->owner && SET(PLANT) == RELEASE_ANY_OWNER)) {
    next = *from;
    next.nodes[n].owner = next.nodes[n].left = 0;
    step(next, "the record of claim %d is released on node %d", node->owner - CLAIM, n);
  }
  const int extends = (own || SET(PLANT) == EXTEND_ANY_OWNER) && (node->left || SET(PLANT) == EXTEND_WHAT_LAPSED);
  if (!extends || (!claim->extending && !claim->late)) return;
  next = *from;
  next.nodes[n].left = (byte)SET(TTL);
  step(next, "an extension of claim %d is executed on node %d, unheard", k, n);
  if (!claim->extending || node->extended[k]) return;
  next.nodes[n].extended[k] = 1;
  int extended = 0;
  for (int i = 0; i < SET(NODES); i++) extended += next.nodes[i].extended[k];
  if (extended >= (SET(PLANT) == ONE_EXTENSION_IS_ENOUGH ? 1 : quorum())) {
    next.claims[k].age = SET(PLANT) == EXTENSION_FROM_REPLY ? 0 : claim->since;
    next.claims[k].extending = 0;
    next.claims[k].late = 1;
  }
  step(next, "an extension of claim %d is executed on node %d", k, n);
}

static void expand_claim(const State *from, int k) {
  const Claim *claim = &from->claims[k];
  State next = *from;
  if (claim->phase == IDLE) {
    next.claims[k].phase = ASKING;
    step(next, "claim %d is invoked", k);
    return;
  }
  if (claim->phase == ENDED) return;
  next.claims[k].phase = ENDED;
  step(next, "claim %d ends", k);
  if (claim->phase != HOLDS || !SET(EXTENSIONS)) return;
  next = *from;
  // A claim sends one extension at a time. It gives up the earlier extension. With a planted error, replies to the
  // earlier extension count for the new one.
  if (SET(PLANT) != EARLIER_REPLY_COUNTS)
    for (int n = 0; n < SET(NODES); n++) next.nodes[n].extended[k] = 0;
  if (claim->extending) next.claims[k].late = 1;
  next.claims[k].extending = 1;
  next.claims[k].since = 0;
  step(next, "claim %d sends an extension", k);
}

static void expand(const State *from) {
  expand_time(from);
  for (int n = 0; n < SET(NODES); n++) expand_faults(from, n);
  for (int k = 0; k < 2; k++) {
    expand_claim(from, k);
    for (int n = 0; n < SET(NODES); n++) expand_messages(from, k, n);
  }
}

static void print_state(const State *state) {
  printf("   ");
  for (int n = 0; n < SET(NODES); n++) {
    const Node *node = &state->nodes[n];
    printf(" node %d:", n);
    if (node->owner) printf(" claim %d for %d", node->owner - CLAIM, node->left);
    if (node->guard) printf(" guard %d", node->guard);
    printf(";");
  }
  for (int k = 0; k < 2; k++) printf(" claim %d phase %d age %d", k, state->claims[k].phase, state->claims[k].age);
  printf("\n");
}

int main(int argc, char **argv) {
  read_settings(settings, SETTINGS, argc, argv);
  State start;
  memset(&start, 0, sizeof start);
  return search(start, SET(WAY));
}
