package sanitize

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// Overrides are a configuration's changes to a profile. nil or empty keeps the table's value; an empty list that is not
// nil means none. ToolIDs replace the table's as a whole.
type Overrides ProfileOf[*bool, *int, *string, *ToolIDs]

// minID is the shortest length of ids, in bytes, at which calls can differ.
const minID = 8

// minName is the shortest length of a tool's name, in bytes, that leaves room for a hash.
const minName = 16

// Validate returns every fault, each as a sentence that begins with the key.
func (o Overrides) Validate() error {
	faults := []error{
		allOf("thinking.modes", o.Thinking.Modes, Enabled, Adaptive, Disabled, BetweenTools),
		oneOf("thinking.default", o.Thinking.Default, On, Off, Unknown),
		allOf("thinking.efforts", o.Thinking.Efforts, levels...),
		oneOf("reasoning.need", o.Replay.Reasoning, Forbidden, Optional, Required, Always),
		allOf("reasoning.fields", o.Replay.Fields, reasoningFields...),
		oneOf("reasoning.placeholder_field", o.Replay.Field, reasoningContent, "reasoning", extraContent),
		oneOf("sampling", o.Sampling, SamplingFree, SamplingFixed, SamplingPlain, SamplingIdle,
			SamplingOne, SamplingNone),
		oneOf("tool_schemas", o.ToolSchemas, SchemaAny, SchemaObject, SchemaTop, SchemaSubset, SchemaPlain),
		oneOf("vendor_tools", o.VendorTools, VendorToolsAll, VendorToolsClient, VendorToolsNone),
		oneOf("context_management", o.ContextManagement, Passed, Beta, Rejected),
	}
	fault := func(wrong bool, format string, args ...any) {
		if wrong {
			faults = append(faults, fmt.Errorf(format, args...))
		}
	}
	if o.CacheMarkers != nil {
		fault(*o.CacheMarkers < 0, "cache_markers must not be negative (0 is any number), not %d", *o.CacheMarkers)
	}
	if o.ToolNames != nil {
		fault(*o.ToolNames != 0 && *o.ToolNames < minName, "tool_names must be at least %d, or 0 for any name, not %d",
			minName, *o.ToolNames)
	}
	if ids := o.ToolIDs; ids != nil {
		fault(ids.Length != 0 && ids.Length < minID, "tool_ids.length must be at least %d, or 0 for no exact length, not %d",
			minID, ids.Length)
		fault(ids.Max != 0 && ids.Max < minID, "tool_ids.max must be at least %d, or 0 for any, not %d", minID, ids.Max)
		fault(ids.Max >= minID && ids.Length > ids.Max, "tool_ids.length is %d, which is longer than tool_ids.max, %d",
			ids.Length, ids.Max)
	}
	f, fields := o.Replay.Field, o.Replay.Fields
	fault(f != "" && fields != nil && !slices.Contains(fields, f),
		"reasoning.placeholder_field is %s, which is not among reasoning.fields", f)
	return errors.Join(faults...)
}

func oneOf[V, T ~string](key string, value V, legal ...T) error {
	if value == "" || slices.Contains(legal, T(value)) {
		return nil
	}
	names := make([]string, len(legal))
	for i, l := range legal {
		names[i] = string(l)
	}
	return fmt.Errorf("%s must be one of %s, not %q", key, strings.Join(names, ", "), value)
}

func allOf[V, T ~string](key string, values []V, legal ...T) error {
	for _, v := range values {
		if v == "" {
			return fmt.Errorf("%s holds an empty name", key)
		}
		if err := oneOf(key, v, legal...); err != nil {
			return err
		}
	}
	return nil
}

// Apply returns p with the overrides. They must be valid.
func (o Overrides) Apply(p Profile) Profile {
	apply(reflect.ValueOf(&p).Elem(), reflect.ValueOf(o))
	return p
}

// apply sets the fields of a part of a profile to what its overrides have under the same names.
func apply(dst, overrides reflect.Value) {
	for field, value := range overrides.Fields() {
		switch target := dst.FieldByName(field.Name); {
		case value.Kind() == reflect.Struct:
			apply(target, value)
		case value.Kind() == reflect.Pointer && !value.IsNil():
			target.Set(value.Elem())
		case !value.IsZero():
			target.Set(value.Convert(target.Type()))
		}
	}
}
