import tls from 'node:tls';
import { getDefaultResultOrder, setDefaultResultOrder } from 'node:dns';
import net from 'node:net';
import { expect, test } from '@jest/globals';
import { networkDefaults, setNetworkDefaults } from '../../../lib/setup/thread/network-defaults.js';

test('the settings of one thread can be sent to another, and apply there', () => {
  const before = networkDefaults();
  try {
    tls.DEFAULT_MIN_VERSION = 'TLSv1.3';
    tls.DEFAULT_CIPHERS = 'TLS_AES_256_GCM_SHA384';
    setDefaultResultOrder('ipv4first');
    net.setDefaultAutoSelectFamily(!before.selectsFamily);
    net.setDefaultAutoSelectFamilyAttemptTimeout(777);
    const sent = structuredClone(networkDefaults());
    setNetworkDefaults(before);
    expect(networkDefaults()).toEqual(before);
    setNetworkDefaults(sent);
    expect(tls.DEFAULT_MIN_VERSION).toBe('TLSv1.3');
    expect(tls.DEFAULT_CIPHERS).toBe('TLS_AES_256_GCM_SHA384');
    expect(getDefaultResultOrder()).toBe('ipv4first');
    expect(net.getDefaultAutoSelectFamily()).toBe(!before.selectsFamily);
    expect(net.getDefaultAutoSelectFamilyAttemptTimeout()).toBe(777);
  } finally {
    setNetworkDefaults(before);
  }
});
