// Keys of send intents: time-ordered, so that the server can decide most of them without asking its archive.

/**
 * A new UUIDv7.
 * @param {number} [now] milliseconds since 1970
 */
export function uuidv7(now = Date.now()) {
    const bytes = crypto.getRandomValues(new Uint8Array(16));
    let rest = now;
    for (let at = 5; at >= 0; at -= 1) {
        bytes[at] = rest % 256;
        rest = Math.floor(rest / 256);
    }
    bytes[6] = ((bytes[6] ?? 0) & 0x0f) | 0x70;
    bytes[8] = ((bytes[8] ?? 0) & 0x3f) | 0x80;
    const hex = Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('');
    return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-${hex.slice(12, 16)}-${hex.slice(16, 20)}-${hex.slice(20)}`;
}
