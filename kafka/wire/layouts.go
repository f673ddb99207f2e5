package wire

// Written by the test TestLayoutsAreThoseOfKmsg (-update); do not edit.

// layouts are how requests and responses are laid out, by key, in words:
//
//	4         so many bytes       s  a string     b  bytes
//	[ ... ]   an array            ?( ... )  a structure that may be absent
//	3-12{ ... }  in versions 3 to 12
//	T         tags, where flexible, with <0 ... > for those that are known
var layouts = [MaxKey + 1][2]string{
	0: { // Produce
		"3-{ s } 6 [ 0-12{ s } 13-{ 16 } [ 4 b T ] T ] T",
		"[ 0-12{ s } 13-{ 16 } [ 14 2-{ 8 } 5-{ 8 } 8-{ [ 4 s T ] } 8-{ s } T <0 8 T > ] T ] 1-{ 4 } T <0 [ 4 s 4 s T ] >",
	},
	1: { // Fetch
		"0-14{ 4 } 8 3-{ 4 } 4-{ 1 } 7-{ 4 } 7-{ 4 } [ 0-12{ s } 13-{ 16 } [ 4 9-{ 4 } 8 12-{ 4 } 5-{ 8 } 4 T <0 16 > <1 8 > ] T ] 7-{ [ 7-12{ s } 13-{ 16 } [ 4 ] T ] } 11-{ s } T <0 s > <1 12 T >",
		"1-{ 4 } 7-{ 2 } 7-{ 4 } [ 0-12{ s } 13-{ 16 } [ 14 4-{ 8 } 5-{ 8 } 4-{ [ 16 T ] } 11-{ 4 } b T <0 12 T > <1 8 T > <2 12 T > ] T ] T <0 [ 4 s 4 s T ] >",
	},
	2: { // ListOffsets
		"4 2-{ 1 } [ s [ 4 4-{ 4 } 8 0-0{ 4 } T ] T ] 10-{ 4 } T",
		"2-{ 4 } [ s [ 6 0-0{ [ 8 ] } 1-{ 8 } 1-{ 8 } 4-{ 4 } T ] T ] T",
	},
	3: { // Metadata
		"[ 10-{ 16 } 0-9{ s } 10-{ s } T ] 4-{ 1 } 8-10{ 1 } 8-{ 1 } T",
		"3-{ 4 } [ 4 s 4 1-{ s } T ] 2-{ s } 1-{ 4 } [ 2 0-11{ s } 12-{ s } 10-{ 16 } 1-{ 1 } [ 10 7-{ 4 } [ 4 ] [ 4 ] 5-{ [ 4 ] } T ] 8-{ 4 } T ] 8-10{ 4 } 13-{ 2 } T",
	},
	4: { // LeaderAndIsr
		"4 7-{ 1 } 4 2-{ 8 } 5-{ 1 } 0-1{ [ 0-1{ s } 16 [ 4 ] 4 [ 4 ] 3-{ [ 4 ] } 3-{ [ 4 ] } 1-{ 1 } 6-{ 1 } T ] } 2-{ [ s 5-{ 16 } [ 0-1{ s } 16 [ 4 ] 4 [ 4 ] 3-{ [ 4 ] } 3-{ [ 4 ] } 1-{ 1 } 6-{ 1 } T ] T ] } [ 4 s 4 T ] T",
		"2 0-4{ [ 0-4{ s } 6 T ] } 5-{ [ 16 [ 0-4{ s } 6 T ] T ] } T",
	},
	5: { // StopReplica
		"8 4-{ 1 } 1-{ 8 } 0-2{ 1 } [ s 0-0{ 4 } 1-2{ [ 4 ] } 3-{ [ 9 T ] } T ] T",
		"2 [ s 6 T ] T",
	},
	6: { // UpdateMetadata
		"4 8-{ 1 } 4 5-{ 8 } 0-4{ [ 0-4{ s } 16 [ 4 ] 4 [ 4 ] 4-{ [ 4 ] } T ] } 5-{ [ s 7-{ 16 } [ 0-4{ s } 16 [ 4 ] 4 [ 4 ] 4-{ [ 4 ] } T ] T ] } [ 4 0-0{ s } 0-0{ 4 } 1-{ [ 4 s 3-{ s } 2 T ] } 2-{ s } T ] T",
		"2 T",
	},
	7: { // ControlledShutdown
		"4 2-{ 8 } T",
		"2 [ s 4 T ] T",
	},
	8: { // OffsetCommit
		"s 1-{ 4 } 1-{ s } 7-{ s } 2-4{ 8 } [ 0-9{ s } 10-{ 16 } [ 12 1-1{ 8 } 6-{ 4 } s T ] T ] T",
		"3-{ 4 } [ 0-9{ s } 10-{ 16 } [ 6 T ] T ] T",
	},
	9: { // OffsetFetch
		"0-7{ s } 0-7{ [ s [ 4 ] T ] } 8-{ [ s 9-{ s } 9-{ 4 } [ 8-9{ s } 10-{ 16 } [ 4 ] T ] T ] } 7-{ 1 } T",
		"3-{ 4 } 0-7{ [ s [ 12 5-{ 4 } s 2 T ] T ] } 2-7{ 2 } 8-{ [ s [ 8-9{ s } 10-{ 16 } [ 16 s 2 T ] T ] 2 T ] } T",
	},
	10: { // FindCoordinator
		"0-3{ s } 1-{ 1 } 4-{ [ s ] } T",
		"1-{ 4 } 0-3{ 2 } 1-3{ s } 0-3{ 4 } 0-3{ s } 0-3{ 4 } 4-{ [ s 4 s 6 s T ] } T",
	},
	11: { // JoinGroup
		"s 4 1-{ 4 } s 5-{ s } s [ s b T ] 8-{ s } T",
		"2-{ 4 } 6 7-{ s } 0-6{ s } 7-{ s } s 9-{ 1 } s [ s 5-{ s } b T ] T",
	},
	12: { // Heartbeat
		"s 4 s 3-{ s } T",
		"1-{ 4 } 2 T",
	},
	13: { // LeaveGroup
		"s 0-2{ s } 3-{ [ s s 5-{ s } T ] } T",
		"1-{ 4 } 2 3-{ [ s s 2 T ] } T",
	},
	14: { // SyncGroup
		"s 4 s 3-{ s } 5-{ s } 5-{ s } [ s b T ] T",
		"1-{ 4 } 2 5-{ s } 5-{ s } b T",
	},
	15: { // DescribeGroups
		"[ s ] 3-{ 1 } T",
		"1-{ 4 } [ 2 6-{ s } s s s s [ s 4-{ s } s s b b T ] 3-{ 4 } T ] T",
	},
	16: { // ListGroups
		"4-{ [ s ] } 5-{ [ s ] } T",
		"1-{ 4 } 2 [ s s 4-{ s } 5-{ s } T ] T",
	},
	17: { // SaslHandshake
		"s",
		"2 [ s ]",
	},
	18: { // ApiVersions
		"3-{ s } 3-{ s } 5-{ s } 5-{ 4 } T",
		"2 [ 6 T ] 1-{ 4 } T <0 [ s 4 T ] > <1 8 > <2 [ s 4 T ] > <3 1 >",
	},
	19: { // CreateTopics
		"[ s 6 [ 4 [ 4 ] T ] [ s s T ] T ] 4 1-{ 1 } T",
		"2-{ 4 } [ s 7-{ 16 } 2 1-{ s } 5-{ 4 } 5-{ 2 } 5-{ [ s s 3 T ] } T <0 2 > ] T",
	},
	20: { // DeleteTopics
		"0-5{ [ s ] } 6-{ [ s 16 T ] } 4 T",
		"1-{ 4 } [ 0-5{ s } 6-{ s } 6-{ 16 } 2 5-{ s } T ] T",
	},
	21: { // DeleteRecords
		"[ s [ 12 T ] T ] 4 T",
		"4 [ s [ 14 T ] T ] T",
	},
	22: { // InitProducerId
		"s 4 3-{ 8 } 3-{ 2 } T",
		"16 T",
	},
	23: { // OffsetForLeaderEpoch
		"3-{ 4 } [ s [ 4 2-{ 4 } 4 T ] T ] T",
		"2-{ 4 } [ s [ 6 1-{ 4 } 8 T ] T ] T",
	},
	24: { // AddPartitionsToTxn
		"0-3{ s } 0-3{ 8 } 0-3{ 2 } 0-3{ [ s [ 4 ] T ] } 4-{ [ s 11 [ s [ 4 ] T ] T ] } T",
		"4 4-{ 2 } 4-{ [ s [ s [ 6 T ] T ] T ] } 0-3{ [ s [ 6 T ] T ] } T",
	},
	25: { // AddOffsetsToTxn
		"s 10 s T",
		"6 T",
	},
	26: { // EndTxn
		"s 11 T",
		"6 5-{ 8 } 5-{ 2 } T",
	},
	27: { // WriteTxnMarkers
		"[ 11 [ s [ 4 ] T ] 4 2-{ 1 } T ] T",
		"[ 8 [ s [ 6 T ] T ] T ] T",
	},
	28: { // TxnOffsetCommit
		"s s 10 3-{ 4 } 3-{ s } 3-{ s } [ 0-5{ s } 6-{ 16 } [ 12 2-{ 4 } s T ] T ] T",
		"4 [ 0-5{ s } 6-{ 16 } [ 6 T ] T ] T",
	},
	29: { // DescribeAcls
		"1 s 1-{ 1 } s s 2 T",
		"6 s [ 1 s 1-{ 1 } [ s s 2 T ] T ] T",
	},
	30: { // CreateAcls
		"[ 1 s 1-{ 1 } s s 2 T ] T",
		"4 [ 2 s T ] T",
	},
	31: { // DeleteAcls
		"[ 1 s 1-{ 1 } s s 2 T ] T",
		"4 [ 2 s [ 2 s 1 s 1-{ 1 } s s 2 T ] T ] T",
	},
	32: { // DescribeConfigs
		"[ 1 s [ s ] T ] 1-{ 1 } 3-{ 1 } T",
		"4 [ 2 s 1 s [ s s 1 0-0{ 1 } 1-{ 1 } 1 1-{ [ s s 1 T ] } 3-{ 1 } 3-{ s } T ] T ] T",
	},
	33: { // AlterConfigs
		"[ 1 s [ s s T ] T ] 1 T",
		"4 [ 2 s 1 s T ] T",
	},
	34: { // AlterReplicaLogDirs
		"[ s [ s [ 4 ] T ] T ] T",
		"4 [ s [ 6 T ] T ] T",
	},
	35: { // DescribeLogDirs
		"[ s [ 4 ] T ] T",
		"4 3-{ 2 } [ 2 s [ s [ 21 T ] T ] 4-{ 8 } 4-{ 8 } 5-{ 1 } T ] T",
	},
	36: { // SaslAuthenticate
		"b T",
		"2 s b 1-{ 8 } T",
	},
	37: { // CreatePartitions
		"[ s 4 [ [ 4 ] T ] T ] 5 T",
		"4 [ s 2 s T ] T",
	},
	38: { // CreateDelegationToken
		"3-{ s } 3-{ s } [ s s T ] 8 T",
		"2 s s 3-{ s } 3-{ s } 24 s b 4 T",
	},
	39: { // RenewDelegationToken
		"b 8 T",
		"14 T",
	},
	40: { // ExpireDelegationToken
		"b 8 T",
		"14 T",
	},
	41: { // DescribeDelegationToken
		"[ s s T ] T",
		"2 [ s s 3-{ s } 3-{ s } 24 s b [ s s T ] T ] 4 T",
	},
	42: { // DeleteGroups
		"[ s ] T",
		"4 [ s 2 3-{ s } T ] T",
	},
	43: { // ElectLeaders
		"1-{ 1 } [ s [ 4 ] T ] 4 T",
		"4 1-{ 2 } [ s [ 6 s T ] T ] T",
	},
	44: { // IncrementalAlterConfigs
		"[ 1 s [ s 1 s T ] T ] 1 T",
		"4 [ 2 s 1 s T ] T",
	},
	45: { // AlterPartitionReassignments
		"4 1-{ 1 } [ s [ 4 [ 4 ] T ] T ] T",
		"4 1-{ 1 } 2 s [ s [ 6 s T ] T ] T",
	},
	46: { // ListPartitionReassignments
		"4 [ s [ 4 ] T ] T",
		"6 s [ s [ 4 [ 4 ] [ 4 ] [ 4 ] T ] T ] T",
	},
	47: { // OffsetDelete
		"s [ s [ 4 ] ]",
		"6 [ s [ 6 ] ]",
	},
	48: { // DescribeClientQuotas
		"[ s 1 s T ] 1 T",
		"6 s [ [ s s T ] [ s 8 T ] T ] T",
	},
	49: { // AlterClientQuotas
		"[ [ s s T ] [ s 9 T ] T ] 1 T",
		"4 [ 2 s [ s s T ] T ] T",
	},
	50: { // DescribeUserScramCredentials
		"[ s T ] T",
		"6 s [ s 2 s [ 5 T ] T ] T",
	},
	51: { // AlterUserScramCredentials
		"[ s 1 T ] [ s 5 b b T ] T",
		"4 [ s 2 s T ] T",
	},
	52: { // Vote
		"s 1-{ 4 } [ s [ 12 1-{ 16 } 1-{ 16 } 12 2-{ 1 } T ] T ] T",
		"2 [ s [ 15 T ] T ] T <0 [ 1-{ 4 } 1-{ s } 1-{ 2 } T ] >",
	},
	53: { // BeginQuorumEpoch
		"s 1-{ 4 } [ s [ 4 1-{ 16 } 8 T ] T ] 1-{ [ s s 2 T ] } T",
		"2 [ s [ 14 T ] T ] T <0 [ 1-{ 4 } 1-{ s } 1-{ 2 } T ] >",
	},
	54: { // EndQuorumEpoch
		"s [ s [ 12 0-0{ [ 4 ] } 1-{ [ 20 T ] } T ] T ] 1-{ [ s s 2 T ] } T",
		"2 [ s [ 14 T ] T ] T <0 [ 1-{ 4 } 1-{ s } 1-{ 2 } T ] >",
	},
	55: { // DescribeQuorum
		"[ s [ 4 T ] T ] T",
		"2 2-{ s } [ s [ 6 2-{ s } 16 [ 4 2-{ 16 } 8 1-{ 8 } 1-{ 8 } T ] [ 4 2-{ 16 } 8 1-{ 8 } 1-{ 8 } T ] T ] T ] 2-{ [ 4 [ s s 2 T ] T ] } T",
	},
	56: { // AlterPartition
		"12 [ 0-1{ s } 2-{ 16 } [ 8 0-2{ [ 4 ] } 3-{ [ 12 T ] } 1-{ 1 } 4 T ] T ] T",
		"6 [ 0-1{ s } 2-{ 16 } [ 14 [ 4 ] 1-{ 1 } 4 T ] T ] T",
	},
	57: { // UpdateFeatures
		"4 [ s 2 0-0{ 1 } 1-{ 1 } T ] 1-{ 1 } T",
		"6 s 0-1{ [ s 2 s T ] } T",
	},
	58: { // Envelope
		"b b b T",
		"b 2 T",
	},
	59: { // FetchSnapshot
		"8 [ s [ 20 T 8 T <0 16 > ] T ] T <0 s >",
		"6 [ s [ 18 T 16 b T <0 8 T > ] T ] T <0 [ 1-{ 4 } 1-{ s } 1-{ 2 } T ] >",
	},
	60: { // DescribeCluster
		"1 1-{ 1 } 2-{ 1 } T",
		"6 s 1-{ 1 } s 4 [ 4 s 4 s 2-{ 1 } T ] 4 T",
	},
	61: { // DescribeProducers
		"[ s [ 4 ] T ] T",
		"4 [ s [ 6 s [ 36 T ] T ] T ] T",
	},
	62: { // BrokerRegistration
		"4 s 16 [ s s 4 T ] [ s 4 T ] s 1-{ 1 } 2-{ [ 16 ] } 3-{ 8 } T",
		"14 T",
	},
	63: { // BrokerHeartbeat
		"22 T <0 [ 16 ] > <1 [ 16 ] >",
		"9 T",
	},
	64: { // UnregisterBroker
		"4 T",
		"6 s T",
	},
	65: { // DescribeTransactions
		"[ s ] T",
		"4 [ 2 s s 22 [ s [ 4 ] T ] T ] T",
	},
	66: { // ListTransactions
		"[ s ] [ 8 ] 1-{ 8 } 2-{ s } T",
		"6 [ s ] [ s 8 s T ] T",
	},
	67: { // AllocateProducerIds
		"12 T",
		"18 T",
	},
	68: { // ConsumerGroupHeartbeat
		"s s 4 s s 4 [ s ] 1-{ s } s [ 16 [ 4 ] T ] T",
		"6 s s 8 ?( [ 16 [ 4 ] T ] T ) T",
	},
	69: { // ConsumerGroupDescribe
		"[ s ] 1 T",
		"4 [ 2 s s s 8 s [ s s s 4 s s [ s ] s [ 16 s [ 4 ] T ] T [ 16 s [ 4 ] T ] T 1-{ 1 } T ] 4 T ] T",
	},
	70: { // ControllerRegistration
		"21 [ s s 4 T ] [ s 4 T ] T",
		"6 s T",
	},
	71: { // GetTelemetrySubscriptions
		"16 T",
		"26 [ 1 ] 9 [ s ] T",
	},
	72: { // PushTelemetry
		"22 b T",
		"6 T",
	},
	73: { // AssignReplicasToDirs
		"12 [ 16 [ 16 [ 4 T ] T ] T ] T",
		"6 [ 16 [ 16 [ 6 T ] T ] T ] T",
	},
	74: { // ListConfigResources
		"1-{ [ 1 ] } T",
		"6 [ s 1-{ 1 } T ] T",
	},
	75: { // DescribeTopicPartitions
		"[ s T ] 4 ?( s 4 T ) T",
		"4 [ 2 s 17 [ 14 [ 4 ] [ 4 ] [ 4 ] [ 4 ] [ 4 ] T ] 4 T ] ?( s 4 T ) T",
	},
	76: { // ShareGroupHeartbeat
		"s s 4 s [ s ] T",
		"6 s s 8 ?( [ 16 [ 4 ] T ] T ) T",
	},
	77: { // ShareGroupDescribe
		"[ s ] 1 T",
		"4 [ 2 s s s 8 s [ s s 4 s s [ s ] [ 16 s [ 4 ] T ] T T ] 4 T ] T",
	},
	78: { // ShareFetch
		"s s 16 1-{ 4 } 1-{ 4 } 2-{ 1 } 2-{ 1 } [ 16 [ 4 0-0{ 4 } [ 16 [ 1 ] T ] T ] T ] [ 16 [ 4 ] T ] T",
		"6 s 1-{ 4 } [ 16 [ 6 s 2 s 8 T b [ 18 T ] T ] T ] [ 4 s 4 s T ] T",
	},
	79: { // ShareAcknowledge
		"s s 4 2-{ 1 } [ 16 [ 4 [ 16 [ 1 ] T ] T ] T ] T",
		"6 s 2-{ 4 } [ 16 [ 6 s 8 T T ] T ] [ 4 s 4 s T ] T",
	},
	80: { // AddRaftVoter
		"s 24 [ s s 2 T ] 1-{ 1 } T",
		"6 s T",
	},
	81: { // RemoveRaftVoter
		"s 20 T",
		"6 s T",
	},
	82: { // UpdateRaftVoter
		"s 24 [ s s 2 T ] 4 T T",
		"6 T <0 8 s 4 T >",
	},
	83: { // InitializeShareGroupState
		"s [ 16 [ 16 T ] T ] T",
		"[ 16 [ 6 s T ] T ] T",
	},
	84: { // ReadShareGroupState
		"s [ 16 [ 8 T ] T ] T",
		"[ 16 [ 6 s 12 [ 19 T ] T ] T ] T",
	},
	85: { // WriteShareGroupState
		"s [ 16 [ 20 1-{ 4 } [ 19 T ] T ] T ] T",
		"[ 16 [ 6 s T ] T ] T",
	},
	86: { // DeleteShareGroupState
		"s [ 16 [ 4 T ] T ] T",
		"[ 16 [ 6 s T ] T ] T",
	},
	87: { // ReadShareGroupStateSummary
		"s [ 16 [ 8 T ] T ] T",
		"[ 16 [ 6 s 16 1-{ 4 } T ] T ] T",
	},
	88: { // StreamsGroupHeartbeat
		"s s 8 s s 4 ?( 4 [ s [ s ] [ s ] [ s 6 [ s s T ] T ] [ s ] [ s 6 [ s s T ] T ] [ [ 2 ] [ 2 ] [ 2 ] T ] T ] T ) [ s [ 4 ] T ] [ s [ 4 ] T ] [ s [ 4 ] T ] s ?( s 2 T ) [ s s T ] [ s 12 T ] [ s 12 T ] 1 T",
		"6 s s 8 0-0{ 4 } 4 1-{ 8 } [ 1 s T ] [ s [ 4 ] T ] [ s [ 4 ] T ] [ s [ 4 ] T ] 1-{ 1 } 4 [ s 2 T [ s [ 4 ] T ] [ s [ 4 ] T ] T ] T",
	},
	89: { // StreamsGroupDescribe
		"[ s ] 1 1-{ 1 } T",
		"4 [ 2 s s s 8 ?( 4 [ s [ s ] [ s ] [ s 6 [ s s T ] T ] [ s 6 [ s s T ] T ] T ] T ) [ s 4 s s s s 4 s ?( s 2 T ) [ s s T ] [ s 12 T ] [ s 12 T ] [ s [ 4 ] T ] [ s [ 4 ] T ] [ s [ 4 ] T ] T [ s [ 4 ] T ] [ s [ 4 ] T ] [ s [ 4 ] T ] T 1 T ] 4 1-{ ?( [ s [ s 1 [ s ] s [ s ] [ s ] T ] T ] [ s 1 [ s ] s [ s ] [ s ] T s 1 [ s ] s [ s ] [ s ] T T ] T ) } 1-{ 1 } 1-{ s } T ] T",
	},
	90: { // DescribeShareGroupOffsets
		"[ s [ s [ 4 ] T ] T ] T",
		"4 [ s [ s 16 [ 16 1-{ 8 } 2 s T ] T ] 2 s T ] T",
	},
	91: { // AlterShareGroupOffsets
		"s [ s [ 12 T ] T ] T",
		"6 s [ s 16 [ 6 s T ] T ] T",
	},
	92: { // DeleteShareGroupOffsets
		"s [ s T ] T",
		"6 s [ s 18 s T ] T",
	},
	93: { // StreamsGroupTopologyDescriptionUpdate
		"s s 4 [ s [ s 1 [ s ] s [ s ] [ s ] T ] T ] [ s 1 [ s ] s [ s ] [ s ] T s 1 [ s ] s [ s ] [ s ] T T ] T T",
		"6 s T",
	},
	94: { // UnregisterController
		"4 T",
		"6 s T",
	},
}
