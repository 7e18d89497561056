import { getDefaultResultOrder, setDefaultResultOrder } from 'node:dns';
import net from 'node:net';
import tls from 'node:tls';

/**
 * Settings of all connections of a thread. The command line or code of the application may have changed them in the main
 * thread, which another thread does not notice.
 */
export interface NetworkDefaults {
  readonly tls: Pick<typeof tls, 'DEFAULT_MIN_VERSION' | 'DEFAULT_MAX_VERSION' | 'DEFAULT_CIPHERS'>;
  readonly order: ReturnType<typeof getDefaultResultOrder>;
  readonly selectsFamily: boolean;
  /** Milliseconds. */
  readonly familyTimeout: number;
}

/** The settings of this thread. */
export function networkDefaults(): NetworkDefaults {
  const { DEFAULT_MIN_VERSION, DEFAULT_MAX_VERSION, DEFAULT_CIPHERS } = tls;
  return {
    tls: { DEFAULT_MIN_VERSION, DEFAULT_MAX_VERSION, DEFAULT_CIPHERS },
    order: getDefaultResultOrder(),
    selectsFamily: net.getDefaultAutoSelectFamily(),
    familyTimeout: net.getDefaultAutoSelectFamilyAttemptTimeout(),
  };
}

/** Changes the settings of this thread. */
export function setNetworkDefaults(defaults: NetworkDefaults): void {
  Object.assign(tls, defaults.tls);
  setDefaultResultOrder(defaults.order);
  net.setDefaultAutoSelectFamily(defaults.selectsFamily);
  net.setDefaultAutoSelectFamilyAttemptTimeout(defaults.familyTimeout);
}
