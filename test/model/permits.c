// This search shows J1 for permits over several nodes: at most n claims hold n permits. Each holder has a majority of nodes
// for one and the same slot. If nodes gave different slots, the claim asks once more, for exactly the slot of the largest
// group; names with MEND refer to this second request. A node then frees the lease's present slot, and grants the other
// slot if it is free.
//
// The search has claims of permits and exclusive claims. A node executes a message at any time, in any order, any number of
// times, or never, also after the claim has ended; messages have no deadline. The search has no clock. A node keeps a grant
// while a claim may rely on it, which `exclusion.c` and `shared-exclusion.c` show; otherwise a slot may lapse at any time.
// All slots are alike, so a claim may wish for any.
#include "model.h"

enum { MOST_NODES = 5, MOST_CLAIMS = 3, MOST_SLOTS = 3, NOBODY = 0, CLAIM = 1, NONE = 0, SLOT = 1 };
typedef struct {
  byte exclusive;          // the claim that holds the lock alone
  byte slots[MOST_SLOTS];  // the claim that has each slot
  byte known[MOST_CLAIMS]; // the slot in the node's answer, on which a holder relies (SLOT + number); NONE
} Node;
enum { ASKING, MENDING, HOLDS, ENDED };
typedef struct {
  Node nodes[MOST_NODES];
  byte phase[MOST_CLAIMS];
  byte slot[MOST_CLAIMS];  // the chosen slot, which the claim asks for exactly
  byte asked[MOST_CLAIMS]; // the bits of all slots that the claim asked for exactly
} State;

#include "search.h"

enum { NODES, SLOTS, PERMITS, EXCLUSIVE, EXTENSIONS, PLANT, WAY, SETTINGS };
static Setting settings[SETTINGS] = {
  [NODES] = {"nodes", 3, "1 to 5"},
  [SLOTS] = {"slots", 2, "the number of permits: 1 to 3"},
  [PERMITS] = {"permits", 2, "claims of a permit; with the others three at most"},
  [EXCLUSIVE] = {"exclusive", 0, "claims that hold alone"},
  [EXTENSIONS] = {"extensions", 1, "1: holders extend"},
  [PLANT] = {"plant", 0, "the number of a planted error, see `enum`"},
  [WAY] = {"way", 0, "1: print the way to a violation"},
};
enum {
  RIGHT,
  COUNTED_ON_EACH_NODE, // a majority of grants in any slots is enough
  MEND_KEEPS_OLD_SLOT,
  MEND_TAKES_WHAT_IS_HELD,
  MEND_FORGETS_OLD_SLOT, // that slot is neither free nor held
  GROUP_CHANGES,         // late replies count for another slot than the chosen one
  EXTENDS_ANY_SLOT,      // an extension counts in any slot
  PERMIT_BESIDE_EXCLUSIVE,
  EXCLUSIVE_BESIDE_PERMITS,
  SLOT_OF_ANOTHER_RELEASED,
  HALF_IS_ENOUGH,
};

static int quorum(void) { return SET(PLANT) == HALF_IS_ENOUGH ? SET(NODES) / 2 + !(SET(NODES) / 2) : SET(NODES) / 2 + 1; }
static int claims(void) { return SET(PERMITS) + SET(EXCLUSIVE); }
static int is_alone(int k) { return k >= SET(PERMITS); }

static int slot_of(const Node *node, int k) {
  for (int s = 0; s < SET(SLOTS); s++)
    if (node->slots[s] == CLAIM + k) return SLOT + s;
  return NONE;
}

static int has_any(const Node *node) {
  for (int s = 0; s < SET(SLOTS); s++)
    if (node->slots[s]) return 1;
  return 0;
}

/** All orders of up to three elements. */
static const byte ORDERS[6][3] = {{0, 1, 2}, {1, 0, 2}, {0, 2, 1}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
static int orders_of(int count) { return count == 3 ? 6 : count == 2 ? 2 : 1; }

static State renamed(const State *state, const byte *claim, const byte *slot) {
  State other = *state;
  const byte slots[] = {NONE, (byte)(SLOT + slot[0]), (byte)(SLOT + slot[1]), (byte)(SLOT + slot[2])};
  for (int n = 0; n < SET(NODES); n++) {
    const Node *node = &state->nodes[n];
    for (int s = 0; s < SET(SLOTS); s++) {
      const int holder = node->slots[s];
      other.nodes[n].slots[slot[s]] = (byte)(holder >= CLAIM && holder < CLAIM + SET(PERMITS) ? CLAIM + claim[holder - CLAIM] : holder);
    }
    for (int k = 0; k < SET(PERMITS); k++) other.nodes[n].known[claim[k]] = slots[node->known[k]];
  }
  for (int k = 0; k < SET(PERMITS); k++) {
    other.phase[claim[k]] = state->phase[k];
    other.slot[claim[k]] = slots[state->slot[k]];
    other.asked[claim[k]] = 0;
    for (int s = 0; s < SET(SLOTS); s++)
      if (state->asked[k] & 1 << s) other.asked[claim[k]] |= (byte)(1 << slot[s]);
  }
  SORT(other.nodes, SET(NODES));
  return other;
}

static void normalise(State *state) {
  for (int k = 0; k < claims(); k++)
    for (int n = 0; n < SET(NODES); n++) {
      byte *known = &state->nodes[n].known[k];
      if (state->phase[k] == ENDED) *known = NONE;
      // Only replies for the chosen slot count.
      if (state->phase[k] == MENDING && *known != state->slot[k] && SET(PLANT) != GROUP_CHANGES) *known = NONE;
    }
  State best = *state;
  int first = 1;
  for (int c = 0; c < orders_of(SET(PERMITS)); c++)
    for (int s = 0; s < orders_of(SET(SLOTS)); s++) {
      const State other = renamed(state, ORDERS[c], ORDERS[s]);
      if (first || memcmp(&other, &best, sizeof best) < 0) best = other;
      first = 0;
    }
  *state = best;
}

static void hold(State *state, int k, int slot) {
  int holders = 0;
  state->phase[k] = HOLDS;
  state->slot[k] = (byte)slot;
  // The claim also asks the nodes that gave it another slot, for exactly this slot.
  if (slot) state->asked[k] |= (byte)(1 << (slot - SLOT));
  for (int n = 0; n < SET(NODES); n++)
    if (SET(PLANT) != COUNTED_ON_EACH_NODE && state->nodes[n].known[k] != slot) state->nodes[n].known[k] = NONE;
  for (int i = 0; i < claims(); i++) {
    if (state->phase[i] != HOLDS) continue;
    holders++;
    if (i == k) continue;
    if (is_alone(i) || is_alone(k)) broken("J1: somebody holds a lock beside its exclusive holder");
    else if (slot && state->slot[i] == slot) broken("J1: two holders have the same slot");
  }
  if (!is_alone(k) && holders > SET(SLOTS)) broken("J1: more hold permits than there are");
}

static void expand_claim(const State *from, int k) {
  if (from->phase[k] == ENDED) return;
  State next = *from;
  next.phase[k] = ENDED;
  step(next, "claim %d ends", k);
  int granted = 0, asked[SLOT + MOST_SLOTS] = {0};
  for (int n = 0; n < SET(NODES); n++) {
    granted += from->nodes[n].known[k] != NONE;
    asked[from->nodes[n].known[k]]++;
  }
  if (from->phase[k] != ASKING && from->phase[k] != MENDING) return;
  for (int slot = SLOT; slot < SLOT + SET(SLOTS); slot++) {
    next = *from;
    if (asked[slot] >= quorum()) {
      hold(&next, k, is_alone(k) ? NONE + 1 : slot);
      step(next, "claim %d holds slot %d", k, slot - SLOT);
    } else if (!is_alone(k) && asked[slot] && from->phase[k] == ASKING) {
      next.phase[k] = MENDING;
      next.slot[k] = (byte)slot;
      next.asked[k] |= (byte)(1 << (slot - SLOT));
      step(next, "claim %d asks for exactly slot %d", k, slot - SLOT);
    }
  }
  if (SET(PLANT) == COUNTED_ON_EACH_NODE && granted >= quorum() && !is_alone(k)) {
    next = *from;
    hold(&next, k, NONE);
    step(next, "claim %d holds a permit", k);
  }
}

/** The claim receives its slot on the node. */
static void expand_reply(const State *from, int k, int n) {
  const int slot = is_alone(k) ? (from->nodes[n].exclusive == CLAIM + k ? SLOT : NONE) : slot_of(&from->nodes[n], k);
  if (!slot || (from->phase[k] != ASKING && from->phase[k] != MENDING)) return;
  State next = *from;
  next.nodes[n].known[k] = (byte)slot;
  step(next, "claim %d hears of slot %d from node %d", k, slot - SLOT, n);
}

static void expand_permit(const State *from, int k, int n) {
  const Node *node = &from->nodes[n];
  const int plant = SET(PLANT), own = slot_of(node, k);
  const int shut = node->exclusive && plant != PERMIT_BESIDE_EXCLUSIVE;
  State next;
  for (int s = 0; s < SET(SLOTS) && !own && !shut; s++) {
    if (node->slots[s]) continue;
    next = *from;
    next.nodes[n].slots[s] = (byte)(CLAIM + k);
    step(next, "claim %d acquires slot %d on node %d", k, s, n);
  }
  for (int s = 0; s < SET(SLOTS); s++) {
    if (!(from->asked[k] & 1 << s) || own == SLOT + s || shut) continue;
    next = *from;
    Node *after = &next.nodes[n];
    const int takes = !node->slots[s] || plant == MEND_TAKES_WHAT_IS_HELD;
    if (own && plant != MEND_KEEPS_OLD_SLOT) after->slots[own - SLOT] = (byte)(plant == MEND_FORGETS_OLD_SLOT ? 127 : NOBODY);
    if (takes) after->slots[s] = (byte)(CLAIM + k);
    if (takes && own && plant == MEND_KEEPS_OLD_SLOT) broken("slots: a claim has two of a node");
    if (own && after->slots[own - SLOT] == 127) broken("slots: one is neither free nor anybody's");
    step(next, "claim %d is asked for slot %d on node %d%s", k, s, n, takes ? ", and takes it" : ", which is held");
  }
  if (!own) return;
  const int relies = from->phase[k] == HOLDS ? node->known[k] != NONE : from->phase[k] != ENDED;
  // An extension for one slot frees another one. A release of a slot on which no claim relies does the same.
  const int other = from->slot[k] && own != from->slot[k] && from->phase[k] == HOLDS;
  if (!relies || other || plant == SLOT_OF_ANOTHER_RELEASED) {
    next = *from;
    next.nodes[n].slots[own - SLOT] = NOBODY;
    step(next, "slot %d of claim %d ends on node %d", own - SLOT, k, n);
  }
}

static void expand_exclusive(const State *from, int k, int n) {
  const Node *node = &from->nodes[n];
  State next = *from;
  if (!node->exclusive && (!has_any(node) || SET(PLANT) == EXCLUSIVE_BESIDE_PERMITS)) {
    next.nodes[n].exclusive = (byte)(CLAIM + k);
    step(next, "claim %d acquires on node %d", k, n);
  } else if (node->exclusive == CLAIM + k && (from->phase[k] == ENDED || (from->phase[k] == HOLDS && !node->known[k]))) {
    next.nodes[n].exclusive = NOBODY;
    step(next, "claim %d ends on node %d", k, n);
  }
}

/** From now on, the claim relies only on the nodes that extended its slot. */
static void expand_extension(const State *from, int k) {
  if (from->phase[k] != HOLDS || is_alone(k) || !SET(EXTENSIONS)) return;
  for (int nodes = 1; nodes < 1 << SET(NODES); nodes++) {
    State next = *from;
    int extended = 0, lacking = 0;
    for (int n = 0; n < SET(NODES); n++) {
      const int own = slot_of(&from->nodes[n], k);
      const int asked = nodes >> n & 1;
      lacking += asked && (SET(PLANT) == EXTENDS_ANY_SLOT ? own == NONE : own != from->slot[k]);
      extended += asked;
      next.nodes[n].known[k] = asked ? from->slot[k] : NONE;
    }
    if (lacking || extended < quorum()) continue;
    step(next, "claim %d extends", k);
  }
}

static void expand(const State *from) {
  for (int k = 0; k < claims(); k++) {
    expand_claim(from, k);
    expand_extension(from, k);
    for (int n = 0; n < SET(NODES); n++) {
      expand_reply(from, k, n);
      if (is_alone(k)) expand_exclusive(from, k, n);
      else expand_permit(from, k, n);
    }
  }
}

static void print_state(const State *state) {
  static const char *phases[] = {"asks", "mends", "holds", "has ended"};
  printf("   ");
  for (int n = 0; n < SET(NODES); n++) {
    const Node *node = &state->nodes[n];
    printf(" node %d:", n);
    if (node->exclusive) printf(" exclusive %d", node->exclusive - CLAIM);
    for (int s = 0; s < SET(SLOTS); s++)
      if (node->slots[s]) printf(" slot %d claim %d's", s, node->slots[s] - CLAIM);
    printf(";");
  }
  for (int k = 0; k < claims(); k++) printf(" claim %d %s", k, phases[state->phase[k]]);
  printf("\n");
}

int main(int argc, char **argv) {
  read_settings(settings, SETTINGS, argc, argv);
  State start;
  memset(&start, 0, sizeof start);
  return search(start, SET(WAY));
}
