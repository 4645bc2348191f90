#!/bin/bash
# An adapter to copy, with adapter.sh: a lock that is a locked file. The system
# unlocks it when its process ends. Replace what has to do with files.
. "$(dirname "$0")/adapter.sh"

name=template version=1
# What the lock can do: wait, token, lease, renew, check, lost, deadline, reentrant.
capabilities='[]'

declare -A held=()

lock_open() { # connect to $urls; $ttl_ms is the lease to ask for
	dir=${TMPDIR:-/tmp}/my-locks
	mkdir -p "$dir"
}

lock_acquire() { # $1 is the lock's name; a lock that can wait waits for $2 milliseconds
	local file
	exec {file}>"$dir/$(jq -rn --arg key "$1" '$key | @uri')" || return 2 # nobody knows
	flock -n "$file"
	case $? in
	0) held["=$1"]=$file ;;
	1) exec {file}>&- ; why='held by another'; return 1 ;; # certainly not granted
	*) return 2 ;;
	esac
}

lock_release() {
	local file=${held["=$1"]}
	[ -n "$file" ] || { why='never acquired'; return 1; } # certainly not held
	unset -v "held[=\$1]"
	exec {file}>&-
}

serve
