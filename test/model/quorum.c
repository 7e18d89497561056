// This search shows J2 and J3 over several nodes, without clocks (see README.md). Each node follows the rules that
// `one-node.test.ts` proves: a grant has a larger token than all that the node has seen, by any amount, and a claim owns the
// record until the next grant. Skew, steps, delays and the number of executions of a message have no bounds.
//
// Two claims are enough for any number of acquisitions, because J2 and J3 compare two successes. Other claims only make a
// node's next token larger, or end an ownership. The grants of the two claims do both, at any time and by any amount.
//
// The search leaves out:
// - The end of a lock. A grant may come at any time, also to the owner: its lock has ended before.
// - Refused and lost messages, and late replies. The sender counts none of them.
// - Duplicates of a grant that still holds. They change nothing, and their answer equals a late reply.
#include "model.h"

enum { MOST_NODES = 5, NOBODY = 0, CLAIM = 1 };
typedef struct {
  byte owner, token;
  /** The state of each claim's grant. While the claim asks: SMALLER or HIGHEST token. While it raises: ASKED or AGREES. */
  byte known[2];
} Node;
enum { UNKNOWN, SMALLER, HIGHEST };
enum { ASKED = 1, AGREES = 2 };
enum { ASKING, RAISING, RETURNED };
typedef struct {
  Node nodes[MOST_NODES];
  byte phase[2];
  byte token[2]; // the highest granted token, while the claim asks
  byte later; // the second claim was invoked after the first had returned
} State;

#include "search.h"

enum { NODES, AGREED, HEALS, PLANT, WAY, SETTINGS };
static Setting settings[SETTINGS] = {
  [NODES] = {"nodes", 3, "1 to 5; five have not been searched to the end"},
  [AGREED] = {"agreed", 1, "1: a node that granted just the token need not be raised; 0: all are raised"},
  [HEALS] = {"heals", 0, "1: a claim with a token stores it on any node, at any time (S26)"},
  [PLANT] = {"plant", 0, "the number of a planted error, see `enum`"},
  [WAY] = {"way", 0, "1: print the way to a violation"},
};
enum {
  RIGHT,
  NO_WRITE_BACK,
  RAISE_ANY_TOKEN, // if the claim holds the lock, whatever the record's token
  RAISE_ANY_TOKEN_AND_LOWER_IT,
  RAISE_ANY_OWNER, // if the record's token is not larger, also if another claim owns the record
  RAISE_BLIND,
  ONE_NODE_IS_ENOUGH,
  HALF_IS_ENOUGH,
  SAME_TOKEN_AGAIN,
  HEAL_LOWERS_TOKEN,
};

static int quorum(void) { return SET(PLANT) == HALF_IS_ENOUGH ? larger(1, SET(NODES) / 2) : SET(NODES) / 2 + 1; }

static void exchange_claims(State *state) {
  for (int n = 0; n < SET(NODES); n++) {
    Node *node = &state->nodes[n];
    if (node->owner) node->owner = (byte)(CLAIM + CLAIM + 1 - node->owner);
    EXCHANGE(node->known[0], node->known[1]);
  }
  EXCHANGE(state->phase[0], state->phase[1]);
  EXCHANGE(state->token[0], state->token[1]);
}

/** Numbers the tokens 0, 2, 4, ... in their order. An odd number lies between two tokens, or above all. */
static int number_tokens(State *state) {
  byte *tokens[MOST_NODES + 2];
  int count = 0, next = 0;
  for (int n = 0; n < SET(NODES); n++) tokens[count++] = &state->nodes[n].token;
  tokens[count++] = &state->token[0];
  tokens[count++] = &state->token[1];
  for (int above = -1;;) {
    int lowest = 127;
    for (int i = 0; i < count; i++)
      if (*tokens[i] > above && *tokens[i] < lowest) lowest = *tokens[i];
    if (lowest == 127) return next;
    for (int i = 0; i < count; i++)
      if (*tokens[i] == lowest) *tokens[i] = (byte)(next - 128);
    above = lowest;
    next += 2;
    int left = 0;
    for (int i = 0; i < count; i++) left += *tokens[i] >= 0;
    if (left) continue;
    for (int i = 0; i < count; i++) *tokens[i] = (byte)(*tokens[i] + 128);
    return next;
  }
}

static void normalise(State *state) {
  for (int n = 0; n < SET(NODES); n++)
    for (int k = 0; k < 2; k++) {
      Node *node = &state->nodes[n];
      if (state->phase[k] == RETURNED) node->known[k] = UNKNOWN;
      // A claim that has nothing more to do on a node does not own the record.
      const int done = state->phase[k] == RETURNED || (state->phase[k] == RAISING && node->known[k] != ASKED);
      if (node->owner == CLAIM + k && done && SET(PLANT) != RAISE_ANY_OWNER) node->owner = NOBODY;
    }
  number_tokens(state);
  SORT(state->nodes, SET(NODES));
  if (state->phase[0] == RETURNED || state->phase[1] == RETURNED) return;
  State other = *state;
  exchange_claims(&other);
  SORT(other.nodes, SET(NODES));
  if (memcmp(&other, state, sizeof other) < 0) *state = other;
}

static void return_token(State *state, int k) {
  const int other = 1 - k;
  state->phase[k] = RETURNED;
  if (state->phase[other] == RETURNED) {
    if (state->token[k] == state->token[other]) broken("J2: a token is given twice");
    else if (state->later && state->token[k] < state->token[other]) broken("J3: a later token is smaller");
    return;
  }
  // A claim without a grant may as well be invoked now: J3 then requires more of it.
  state->later = state->phase[other] == ASKING;
  for (int n = 0; n < SET(NODES) && state->later; n++) state->later = state->nodes[n].known[other] == UNKNOWN;
}

static void expand_grant(const State *from, int k, int n, int token) {
  if (from->phase[k] == RETURNED || (from->phase[k] == RAISING && from->nodes[n].known[k] != ASKED)) return;
  State next = *from;
  Node *node = &next.nodes[n];
  const int again = node->known[k] != UNKNOWN;
  node->owner = (byte)(CLAIM + k);
  node->token = (byte)token;
  if (!again) {
    int first = 1;
    for (int i = 0; i < SET(NODES); i++) first &= from->nodes[i].known[k] == UNKNOWN;
    if (first || token > from->token[k]) {
      for (int i = 0; i < SET(NODES); i++)
        if (next.nodes[i].known[k] == HIGHEST) next.nodes[i].known[k] = SMALLER;
      next.token[k] = (byte)token;
    }
    node->known[k] = token == next.token[k] ? HIGHEST : SMALLER;
  }
  step(next, "claim %d acquires %son node %d: %d", k, again ? "again " : "", n, token);
}

static void expand_decision(const State *from, int k, int above) {
  int granted = 0;
  for (int n = 0; n < SET(NODES); n++) granted += from->nodes[n].known[k] != UNKNOWN;
  if (granted < quorum()) return;
  // A lock of several keys takes the highest token of all keys.
  for (int token = from->token[k]; token <= above; token++) {
    State next = *from;
    int agree = 0;
    next.phase[k] = RAISING;
    next.token[k] = (byte)token;
    for (int n = 0; n < SET(NODES); n++) {
      const int known = from->nodes[n].known[k];
      const int same = known == HIGHEST && token == from->token[k];
      agree += same;
      next.nodes[n].known[k] = known == UNKNOWN ? UNKNOWN : same && SET(AGREED) ? AGREES : ASKED;
    }
    if (agree >= quorum() || SET(PLANT) == NO_WRITE_BACK) return_token(&next, k);
    step(next, "claim %d %s %d", k, next.phase[k] == RETURNED ? "returns" : "raises to", token);
  }
}

static int may_raise(const Node *node, int k, int token) {
  const int own = node->owner == CLAIM + k, above = node->token > token;
  switch (SET(PLANT)) {
    case RAISE_BLIND: return 1;
    case RAISE_ANY_OWNER: return !above;
    case RAISE_ANY_TOKEN:
    case RAISE_ANY_TOKEN_AND_LOWER_IT: return own;
    default: return own && !above;
  }
}

static void expand_raise(const State *from, int k, int n) {
  if (from->nodes[n].known[k] != ASKED || !may_raise(&from->nodes[n], k, from->token[k])) return;
  State next = *from;
  Node *node = &next.nodes[n];
  const int lowers = SET(PLANT) == RAISE_ANY_TOKEN_AND_LOWER_IT;
  node->token = (byte)(lowers ? from->token[k] : larger(node->token, from->token[k]));
  node->known[k] = AGREES;
  int agree = 0;
  for (int i = 0; i < SET(NODES); i++) agree += next.nodes[i].known[k] == AGREES;
  if (agree >= (SET(PLANT) == ONE_NODE_IS_ENOUGH ? 1 : quorum())) return_token(&next, k);
  step(next, "claim %d raises node %d to %d%s", k, n, from->token[k], next.phase[k] == RETURNED ? ", returns" : "");
}

/**
 * A claim stores its lease on any node. So does a third claim, with any token: its healing request may come late. The answer
 * has no token that counts. The node keeps a larger token.
 */
static void expand_healing(const State *from, int n, int token, int owner) {
  State next = *from;
  Node *node = &next.nodes[n];
  node->owner = (byte)owner;
  node->token = (byte)(SET(PLANT) == HEAL_LOWERS_TOKEN ? token : larger(node->token, token));
  step(next, "a claim heals on node %d with %d", n, token);
}

static void expand(const State *from) {
  if (from->phase[0] == RETURNED && from->phase[1] == RETURNED) return;
  int above = 1;
  for (int n = 0; n < SET(NODES); n++) above = larger(above, from->nodes[n].token + 1);
  for (int k = 0; k < 2; k++) above = larger(above, from->token[k] + 1);
  for (int k = 0; k < 2; k++) {
    if (from->phase[k] == ASKING) expand_decision(from, k, above);
    for (int n = 0; n < SET(NODES); n++) {
      const int least = from->nodes[n].token + (SET(PLANT) == SAME_TOKEN_AGAIN ? 0 : 1);
      for (int token = least; token <= above; token++) expand_grant(from, k, n, token);
      if (from->phase[k] == RAISING) expand_raise(from, k, n);
      if (from->phase[k] == RETURNED && SET(HEALS)) expand_healing(from, n, from->token[k], CLAIM + k);
    }
  }
  for (int n = 0; n < SET(NODES) && SET(HEALS); n++)
    for (int token = 0; token <= above; token++) expand_healing(from, n, token, NOBODY);
}

static void print_state(const State *state) {
  printf("   ");
  for (int n = 0; n < SET(NODES); n++) {
    const Node *node = &state->nodes[n];
    printf(" node %d: %d", n, node->token);
    if (node->owner) printf(" of claim %d", node->owner - CLAIM);
    printf(";");
  }
  printf("\n");
}

int main(int argc, char **argv) {
  read_settings(settings, SETTINGS, argc, argv);
  State start;
  memset(&start, 0, sizeof start);
  return search(start, SET(WAY));
}
