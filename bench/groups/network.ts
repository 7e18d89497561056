import { LongerWay } from '../measure/longer-way.js';
import type { ResultTable } from '../report/tables.js';
import { fit, type Group, nodesTitle, type Plan } from './group.js';
import { latencyTable } from './latency.js';
import { withStaff } from './sessions.js';

/** Added time of each round trip in milliseconds, as between two machines of one data centre. */
const ADDED = 0.5;

/** Measures the effect of a network between client and servers, which the loopback interface does not have. */
export const network: Group = {
  name: 'network',
  about: `acquire and release, one after the other, with ${ADDED} ms added to each round trip`,
  async run(plan) {
    const tables: ResultTable[] = [];
    for (const nodes of plan.nodes) {
      let way: LongerWay | undefined;
      const table = await withStaff(
        nodes,
        fit(plan.contenders, nodes),
        (staff, servers) =>
          latencyTable(
            `Latency of acquire and release, ${ADDED} ms away, ${nodesTitle(nodes)}, us`,
            staff,
            servers,
            fewer(plan),
          ),
        async ({ urls }) => (way = await LongerWay.open(urls, ADDED)),
      );
      const [p50 = '', p90 = ''] = [way?.added.p50, way?.added.p90].map((ms) => ms?.toFixed(3));
      tables.push({
        ...table,
        notes: [
          `A proxy between client and servers adds the delay; it uses a core while messages are in flight. A PING takes ${p50} ms`,
          `longer through it (p50; p90 ${p90} ms), as measured before the contenders; it holds each message back for`,
          `${way?.heldBack.toFixed(3)} ms.`,
        ],
      });
    }
    return { tables };
  },
};

/** A call takes a millisecond in this group, so there are fewer calls. */
function fewer(plan: Plan): Plan {
  return { ...plan, effort: plan.effort / 4 };
}
