// This search shows J2 and J3 over up to three nodes that forget records (see README.md). Each node has a clock, a record
// and a marker. `quorum.c` and `one-node.ts` prove the same in two parts, with fewer bounds; this search shows that the two
// parts fit together.
//
// Each node's clock advances at any rate, from 0 to `span`. It may fall any number of times, by `back` at most below its
// highest time. A node executes a message at any time, in any order, any number of times, or never.
//
// Two claims are enough for any number of acquisitions, because J2 and J3 compare two successes. Other claims only make a
// node's next token larger, or end an ownership. A grant to one of the two claims may do both, at any time.
//
// The search leaves out the following, because other steps lead to the same states:
// - The ttl and extensions. A claim's record may stay held for any time.
// - Refusals by another holder. Any lock may end at any time, before the next grant.
// - Records that stay beyond the linger without a holder. A present record makes tokens larger.
// - The flag `free`. The flag keeps a released record from being held again after a fall of the clock. In this search
//   such a record is held again.
// - The time that claims measure. A success counts however late it comes.
// - A clock that advances while nothing happens on its node. The next step is on that node (`focus`).
#include "model.h"

enum { NODES = 3, NONE = -100, LESS = -99, HELD = 127 };
enum { NOBODY, SOMEBODY, CLAIM }; // SOMEBODY: also a claim that has nothing more to do there; CLAIM + 1: the second claim
typedef struct {
  byte clock; // relative to the slowest clock
  byte fallen; // distance below the highest time that the clock has shown
  byte owner, token, end; // the record, which the node forgets at its end
  byte marker;
  byte born; // the clock at the loss of the data; NONE: long ago
  byte known[2]; // the granted token, while the claim asks; ASKED or RAISED, while it raises
} Node;
enum { ASKED = 1, RAISED = 2 };
enum { ASKING, RAISING, RETURNED };
typedef struct {
  Node nodes[NODES];
  byte phase[2], token[2];
  byte later; // the second claim was invoked after the first had returned
  byte losses;
  byte focus; // the node whose clock advanced last (1 to 3), on which the next step is
} State;

#include "search.h"

enum { N, SPAN, LINGER, LEAD, BACK, BURST, ANY, AGREED, LOSSES, GUARD, PLANT, WAY, SETTINGS };
static Setting settings[SETTINGS] = {
  [N] = {"nodes", 3, "1 to 3"},
  [SPAN] = {"span", 3, "all clocks begin at 0 and end at this tick at the latest"},
  [LINGER] = {"linger", 1, "ticks that a record is kept when it is not held"},
  [LEAD] = {"lead", 0, "a token that is further ahead of the node's clock lifts the marker"},
  [BACK] = {"back", 0, "how far a clock may fall below what it has said"},
  [BURST] = {"burst", 1, "tokens get ahead of all clocks, by counting, by so many ticks at most"},
  [ANY] = {"any", 1, "1: a grant or a raise gives any token that is large enough; 0: the least, or one within the lead"},
  [AGREED] = {"agreed", 1, "1: a node that granted just the token need not be raised; 0: all are raised"},
  [LOSSES] = {"losses", 0, "how often a node loses its data, marker and all"},
  [GUARD] = {"guard", 0, "ticks for which a node that lost its data grants nothing"},
  [PLANT] = {"plant", 0, "the number of a planted error, see `enum`"},
  [WAY] = {"way", 1, "1: print the way to a violation"},
};
enum {
  RIGHT,
  NO_WRITE_BACK,
  RAISE_ANY_TOKEN,
  RAISE_OVERWRITES_TOKEN,
  RAISE_NOT_HELD,
  RAISE_BLIND,
  RAISE_ANY_OWNER,
  HALF_ENOUGH,
  NO_MARKER,
  MARKER_BY_RAISES_ONLY,
  MARKER_BY_GRANTS_ONLY,
  SAME_TOKEN_AGAIN,
  MARKER_IGNORED,
};

static int latest(const Node *node) { return node->clock + node->fallen; }
static int lowest(const Node *node) { return latest(node) - SET(BACK); }
static int quorum(void) { return SET(PLANT) == HALF_ENOUGH ? larger(1, SET(N) / 2) : SET(N) / 2 + 1; }
static int is_held(const Node *node) { return node->owner && (node->end == HELD || node->end - node->clock > SET(LINGER)); }

static int most(void) { return SET(SPAN) + SET(LEAD) + SET(BURST); }

static int least(const Node *node) {
  if (node->owner) return larger(node->token + (SET(PLANT) == SAME_TOKEN_AGAIN ? 0 : 1), node->clock);
  if (node->marker == NONE || SET(PLANT) == MARKER_IGNORED) return node->clock;
  return larger(node->marker + 1, node->clock);
}

static void lift(Node *node, int token, int by_raise) {
  if (SET(PLANT) == NO_MARKER || SET(PLANT) == (by_raise ? MARKER_BY_GRANTS_ONLY : MARKER_BY_RAISES_ONLY)) return;
  if (token <= node->clock + SET(LEAD)) return;
  node->marker = (byte)larger(node->marker, token);
}

static int guarded(const Node *node) { return node->born != NONE && node->clock - node->born < SET(GUARD); }

static void grant(Node *node, int owner, int token) {
  node->owner = (byte)owner;
  node->token = (byte)token;
  node->end = (byte)(owner == SOMEBODY ? node->clock + SET(LINGER) : HELD);
  lift(node, token, 0);
}

static void hand_to_somebody(Node *node) {
  node->owner = SOMEBODY;
  if (node->end == HELD) node->end = (byte)(node->clock + SET(LINGER));
}

static void exchange_claims(State *state) {
  for (int n = 0; n < SET(N); n++) {
    Node *node = &state->nodes[n];
    if (node->owner >= CLAIM) node->owner = (byte)(CLAIM + CLAIM + 1 - node->owner);
    const byte known = node->known[0];
    node->known[0] = node->known[1];
    node->known[1] = known;
  }
  const byte phase = state->phase[0], token = state->token[0];
  state->phase[0] = state->phase[1];
  state->token[0] = state->token[1];
  state->phase[1] = phase;
  state->token[1] = token;
}

static void sort_nodes(State *state) {
  for (int i = 1; i < SET(N); i++)
    for (int j = i; j > 0 && memcmp(&state->nodes[j - 1], &state->nodes[j], sizeof(Node)) > 0; j--) {
      const Node node = state->nodes[j];
      state->nodes[j] = state->nodes[j - 1];
      state->nodes[j - 1] = node;
      if (state->focus == j + 1) state->focus = (byte)j;
      else if (state->focus == j) state->focus = (byte)(j + 1);
    }
}

/** All tokens in the state, to be renumbered. */
static int tokens_of(State *state, byte **found) {
  int count = 0;
  for (int n = 0; n < SET(N); n++) {
    Node *node = &state->nodes[n];
    if (node->owner) found[count++] = &node->token;
    for (int k = 0; k < 2; k++)
      if (state->phase[k] == ASKING && node->known[k] > LESS) found[count++] = &node->known[k];
  }
  for (int k = 0; k < 2; k++)
    if (state->phase[k] != ASKING) found[count++] = &state->token[k];
  return count;
}

static void normalise(State *state) {
  for (int n = 0; n < SET(N); n++) {
    Node *node = &state->nodes[n];
    for (int k = 0; k < 2; k++) {
      // After a success, or without anything more to do, a claim's record equals that of any other claim.
      const int done = state->phase[k] == RETURNED || (state->phase[k] == RAISING && node->known[k] != ASKED);
      if (state->phase[k] == RETURNED) node->known[k] = 0;
      if (node->owner == CLAIM + k && done) hand_to_somebody(node);
    }
    const int forgotten = node->owner && node->end != HELD && node->end <= node->clock;
    // A token below the clock's lowest value has no effect any more: the clock alone gives larger tokens.
    const int overtaken = node->owner == SOMEBODY && node->token < lowest(node);
    if (forgotten || overtaken) node->owner = node->token = node->end = 0;
    if (node->marker != NONE && node->marker < lowest(node)) node->marker = NONE;
    if (node->born != NONE && lowest(node) - node->born >= SET(GUARD)) node->born = NONE;
  }
  for (int k = 0; k < 2; k++) {
    // Only the highest granted token of a claim matters, and the nodes that gave it.
    int highest = NONE;
    for (int n = 0; n < SET(N) && state->phase[k] == ASKING; n++) highest = larger(highest, state->nodes[n].known[k]);
    for (int n = 0; n < SET(N) && highest != NONE; n++) {
      byte *known = &state->nodes[n].known[k];
      if (*known != NONE && *known < highest) *known = LESS;
    }
  }
  byte *tokens[16];
  const int count = tokens_of(state, tokens);
  int low = 127;
  for (int n = 0; n < SET(N); n++)
    if (lowest(&state->nodes[n]) < low) low = lowest(&state->nodes[n]);
  // Only the order of tokens below every clock matters.
  for (int next = low - 1, below = low;; next--) {
    int highest = -128;
    for (int i = 0; i < count; i++)
      if (*tokens[i] < below && *tokens[i] > highest) highest = *tokens[i];
    if (highest == -128) break;
    for (int i = 0; i < count; i++)
      if (*tokens[i] == highest) *tokens[i] = (byte)next;
    below = next;
  }
  sort_nodes(state);
  if (state->phase[0] == RETURNED || state->phase[1] == RETURNED) return;
  State other = *state;
  exchange_claims(&other);
  sort_nodes(&other);
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
  state->later = state->phase[other] == ASKING;
  for (int n = 0; n < SET(N); n++)
    if (state->phase[other] == ASKING && state->nodes[n].known[other] != NONE) state->later = 0;
}

static void expand_clocks(const State *from, int n) {
  State next = *from;
  Node *node = &next.nodes[n];
  next.focus = (byte)(n + 1);
  node->clock++;
  if (node->fallen) node->fallen--;
  if (latest(node) <= SET(SPAN)) step(next, "clock of node %d goes on to %d", n, node->clock);
  for (int fall = 1; fall <= SET(BACK) - from->nodes[n].fallen; fall++) {
    next = *from;
    next.focus = (byte)(n + 1);
    node->clock = (byte)(node->clock - fall);
    node->fallen = (byte)(node->fallen + fall);
    step(next, "clock of node %d steps back by %d", n, fall);
  }
}

static void expand_node(const State *from, int n) {
  const Node *node = &from->nodes[n];
  if (from->losses) {
    State next = *from;
    next.nodes[n].owner = next.nodes[n].token = next.nodes[n].end = 0;
    next.nodes[n].marker = NONE;
    next.nodes[n].born = node->clock;
    next.losses--;
    step(next, "node %d loses its data", n);
  }
  if (node->owner >= CLAIM && (node->end == HELD || node->end > node->clock + SET(LINGER))) {
    State next = *from;
    next.nodes[n].end = (byte)(node->clock + SET(LINGER));
    step(next, "claim %d ends on node %d", node->owner - CLAIM, n);
  }
  if (guarded(node)) return;
  const int from_token = least(node);
  const int to_token = SET(ANY) ? most() : larger(from_token, node->clock + SET(LEAD));
  for (int token = from_token; token <= to_token && token <= most(); token++) {
    for (int k = 0; k < 2; k++) {
      State next = *from;
      // A duplicate of a held lock changes nothing, and its answer equals a late reply.
      if (node->owner == CLAIM + k && is_held(node)) continue;
      const int known = node->known[k];
      if (from->phase[k] == ASKING) {
        grant(&next.nodes[n], CLAIM + k, token);
        if (known == NONE) next.nodes[n].known[k] = (byte)token;
        step(next, "claim %d acquires on node %d: %d", k, n, token);
      } else if (from->phase[k] == RAISING && known == ASKED) {
        grant(&next.nodes[n], CLAIM + k, token);
        step(next, "claim %d acquires again on node %d: %d", k, n, token);
      }
    }
  }
}

static int may_raise(const Node *node, int k, int token) {
  const int own = node->owner == CLAIM + k;
  const int plant = SET(PLANT);
  if (plant == RAISE_BLIND) return 1;
  if (plant == RAISE_ANY_OWNER) return node->owner && node->token <= token;
  if (plant == RAISE_ANY_TOKEN || plant == RAISE_OVERWRITES_TOKEN) return own && is_held(node);
  if (plant == RAISE_NOT_HELD) return own && node->token <= token;
  return own && is_held(node) && node->token <= token;
}

static void expand_raise(const State *from, int k, int n) {
  if (from->nodes[n].known[k] != ASKED) return;
  const int token = from->token[k];
  if (!may_raise(&from->nodes[n], k, token)) return;
  State next = *from;
  Node *node = &next.nodes[n];
  if (node->owner) {
    node->token = (byte)(SET(PLANT) == RAISE_OVERWRITES_TOKEN ? token : larger(node->token, token));
    lift(node, token, 1);
  }
  node->known[k] = RAISED;
  int raised = 0;
  for (int i = 0; i < SET(N); i++) raised += next.nodes[i].known[k] == RAISED;
  if (raised >= quorum()) return_token(&next, k);
  step(next, "claim %d raises node %d to %d%s", k, n, token, next.phase[k] == RETURNED ? " and returns it" : "");
}

static void expand_decision(const State *from, int k) {
  int granted = 0, highest = NONE;
  for (int n = 0; n < SET(N); n++) {
    granted += from->nodes[n].known[k] != NONE;
    highest = larger(highest, from->nodes[n].known[k]);
  }
  if (granted < quorum()) return;
  // A lock of several keys has the highest token of all keys.
  for (int token = highest; token <= (SET(ANY) ? most() : highest); token++) {
    State next = *from;
    int agreed = 0;
    next.phase[k] = RAISING;
    next.token[k] = (byte)token;
    for (int n = 0; n < SET(N); n++) {
      const int known = from->nodes[n].known[k];
      agreed += known == token;
      next.nodes[n].known[k] = known == NONE ? 0 : known == token && SET(AGREED) ? RAISED : ASKED;
    }
    if (agreed >= quorum() || SET(PLANT) == NO_WRITE_BACK) return_token(&next, k);
    step(next, "claim %d %s %d", k, next.phase[k] == RETURNED ? "returns" : "raises to", token);
  }
}

static void expand(const State *from) {
  if (from->phase[0] == RETURNED && from->phase[1] == RETURNED) return;
  State still = *from;
  still.focus = 0;
  for (int n = 0; n < SET(N); n++) {
    if (from->focus && from->focus != n + 1) continue;
    expand_clocks(from, n);
    expand_node(&still, n);
    for (int k = 0; k < 2; k++)
      if (from->phase[k] == RAISING) expand_raise(&still, k, n);
  }
  for (int k = 0; k < 2 && !from->focus; k++)
    if (from->phase[k] == ASKING) expand_decision(from, k);
}

static void print_state(const State *state) {
  for (int n = 0; n < SET(N); n++) {
    const Node *node = &state->nodes[n];
    printf("    node %d: clock %d", n, node->clock);
    if (node->fallen) printf(" (was %d)", latest(node));
    if (node->owner) {
      printf(", record of %s%.*d, token %d", node->owner == SOMEBODY ? "somebody" : "claim ", node->owner != SOMEBODY,
             node->owner == SOMEBODY ? 0 : node->owner - CLAIM, node->token);
      if (node->end == HELD) printf(", held");
      else printf(", %d left", node->end - node->clock);
    }
    if (node->marker != NONE) printf(", marker %d", node->marker);
    printf("\n");
  }
}

int main(int argc, char **argv) {
  read_settings(settings, SETTINGS, argc, argv);
  State start;
  memset(&start, 0, sizeof start);
  for (int n = 0; n < NODES; n++) {
    Node *node = &start.nodes[n];
    node->marker = node->born = NONE;
    node->known[0] = node->known[1] = NONE;
  }
  start.losses = (byte)SET(LOSSES);
  return search(start, SET(WAY));
}
