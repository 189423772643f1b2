/**
 * What went wrong, in the reader's words.
 */

import { notice } from './dialog.js';
import { t } from './words.js';

/** @type {{[code: string]: import('./words.js').Word}} */
const WORDS = {
  unavailable: 'e_unavailable',
  overloaded: 'e_unavailable',
  forbidden: 'e_forbidden',
  read_only: 'read_only',
  not_found: 'e_not_found',
  rate_limited: 'e_rate_limited',
  deleted: 'e_deleted',
  dissolved: 'e_dissolved',
  too_large: 'e_too_large',
  unsupported_media_type: 'picture_kind',
  invalid_field: 'e_invalid_field',
  network: 'e_offline',
};

/** @param {unknown} error */
export function inWords(error) {
  const { code, status } = /** @type {{ code?: string, status?: number }} */ (error ?? {});
  const word = WORDS[code ?? ''];
  if (word) return t(word);
  if (status === 413) return t('e_too_large');
  // Whatever a proxy in between says, or does not.
  if ((status ?? 0) >= 500 || code === 'timeout') return t('e_unavailable');
  if (!status && (error instanceof TypeError || navigator.onLine === false)) return t('e_offline');
  return t('e_unknown');
}

/**
 * Does something that may fail, and tells when it did.
 * @template T
 * @param {Promise<T>} promise
 * @returns {Promise<T | undefined>}
 */
export async function told(promise) {
  try {
    return await promise;
  } catch (error) {
    const { name, code } = /** @type {{ name?: string, code?: string }} */ (error ?? {});
    // Nobody waits for it any more.
    if (name !== 'AbortError' && code !== 'closed') notice(inWords(error), true);
    return undefined;
  }
}
