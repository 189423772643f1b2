// The door of the client module. `connect` gives a Chat: the conversations of one user, kept up to date.
import { Chat } from './client/connection.js';

export { Chat } from './client/connection.js';
export { Conversation } from './client/conversation.js';
export { ConversationList } from './client/conversation_list.js';
export { SeqlineError } from './client/errors.js';
export { indexedDbStore, memoryStore } from './client/store.js';
export { uuidv7 } from './client/uuidv7.js';

/** @typedef {import('./client/connection.js').ConnectOptions} ConnectOptions */
/** @typedef {import('./client/connection.js').ChatState} ChatState */
/** @typedef {import('./client/conversation.js').Entry} Entry */
/** @typedef {import('./client/conversation.js').Words} Words */
/** @typedef {import('./client/conversation_list.js').ListItem} ListItem */
/** @typedef {import('./client/shapes.js').ConversationInfo} ConversationInfo */
/** @typedef {import('./client/shapes.js').ChatEvent} ChatEvent */
/** @typedef {import('./client/shapes.js').Member} Member */
/** @typedef {import('./client/shapes.js').Media} Media */
/** @typedef {import('./client/shapes.js').Message} Message */
/** @typedef {import('./client/store.js').Store} Store */

/**
 * Begins at once; what goes wrong is tried again until `close`.
 * @param {ConnectOptions} options
 * @returns {Chat}
 */
export function connect(options) {
    return new Chat(options);
}
