/**
 * Shapes that the page passes around. For the type checker alone; nothing loads this file.
 *
 * @typedef {{ id: string, position: number, mime_type: string, width: number, height: number, size: number }} MediaItem
 * @typedef {{ seq: number, id?: string, sender?: string, kind?: string, preview?: string, deleted?: boolean, hidden?: boolean }} Quote
 * @typedef {{ emoji: string, count: number, me?: boolean }} Reaction
 * @typedef {{ type: string, id: string, title: string | null, url: string | null, image_url: string | null, deleted: boolean }} Share
 * @typedef {{ id: string, conversation_id: string, seq: number, rev: number, sender: string, client_id: string | null, kind: string,
 *   body: string, media: MediaItem[], reply_to: Quote | null, share: Share | null, mentions: string[], reactions: Reaction[],
 *   data?: any, created_at: string, edited_at: string | null, deleted_at: string | null, deleted_by: string | null }} Message
 * @typedef {{ body?: string, kind?: string, media?: string[], reply_to?: number }} Draft
 * @typedef {{ kind: 'message', seq: number, message: Message }} MessageEntry
 * @typedef {{ kind: 'pending', clientId: string, draft: Draft, state: 'waiting' | 'sending' | 'failed', error?: any, at: number | string }} PendingEntry
 * @typedef {{ kind: 'gap', from: number, to: number, loading: boolean }} GapEntry
 * @typedef {MessageEntry | PendingEntry | GapEntry} Entry
 * @typedef {{ role: string, read_seq: number, unread: number, unread_more: boolean, muted: boolean, pinned: boolean, hidden: boolean,
 *   marked_unread: boolean, blocked: boolean }} Me
 * @typedef {{ id: string, kind: string, title: string | null, owner: string | null, peer?: string,
 *   peer_profile?: { name: string | null, avatar_url: string | null }, display_name: string | null, member_count: number, head_seq: number,
 *   rev: number, updated_at: string, last_message: Message | null, me: Me | null, typing?: string[] }} Summary
 * @typedef {any} Chat the module's connection
 * @typedef {any} OpenConversation the module's conversation
 * @typedef {{ chat: Chat, people: import('./people.js').People, open: (id: string, seq?: number) => void, left: (id: string) => void }} Page
 */
export {};
